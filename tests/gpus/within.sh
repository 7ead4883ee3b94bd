#!/bin/sh
# Runs a command on a machine that seems to have two GPUs: a /dev of its own with their device files, and the made-up driver
# library. usage: unshare -m --propagation private within.sh LIBRARY_FOLDER COMMAND...
set -e
library=$1
shift
dev=$(mktemp -d)
mount -t tmpfs none "$dev"
for name in null zero full random urandom tty; do
    touch "$dev/$name"
    mount --bind "/dev/$name" "$dev/$name"
done
# Two devices that anybody may open, with numbers of their own.
for pair in nvidia0:zero nvidia1:full nvidiactl:null; do
    touch "$dev/${pair%%:*}"
    mount --bind "/dev/${pair##*:}" "$dev/${pair%%:*}"
done
mkdir "$dev/shm"
mount --bind /dev/shm "$dev/shm"
ln -s /proc/self/fd "$dev/fd"
mount --rbind "$dev" /dev
LD_LIBRARY_PATH=$library exec "$@"
