/* A driver library with two GPUs that are not there, for tests on machines without any. It answers what Neap asks, with the
   signatures of the real one: the first GPU works 30 % of the time and the second 90 %, each with 1 of 8 GiB in use. */

#include <stdio.h>
#include <string.h>

struct memory { unsigned long long total, free, used; };
struct utilization { unsigned gpu, memory; };

static const char NAME[] = "GPU-made-up-";

static long number(void *device) { return (long)device - 1; }

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index > 1) return 2;
    *device = (void *)(long)(index + 1);
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strncmp(uuid, NAME, sizeof NAME - 1) != 0) return 6;
    *device = (void *)(long)(uuid[sizeof NAME - 1] - '0' + 1);
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned bytes) {
    snprintf(text, bytes, "%s%ld", NAME, number(device));
    return 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned bytes) {
    snprintf(text, bytes, "Made-up GPU %ld", number(device));
    return 0;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    *minor = (unsigned)number(device);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    (void)device;
    memory->total = 8ULL << 30;
    memory->used = 1ULL << 30;
    memory->free = memory->total - memory->used;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates) {
    rates->gpu = number(device) == 0 ? 30 : 90;
    rates->memory = 1;
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
    snprintf(text, bytes, "1.2.3");
    return 0;
}

const char *nvmlErrorString(int code) {
    (void)code;
    return "made-up error";
}
