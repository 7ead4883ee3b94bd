"""Data through the current SDK, on real stores: every source, mode and type; outputs and what they become; what is refused."""

import hashlib
import os
from pathlib import Path

import pytest
from azure.ai.ml import Input, MLClient, Output, command
from azure.ai.ml.entities import AccountKeyConfiguration, AzureBlobDatastore, Data, Environment, Model
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential

import stores
from neapserver import Server, new_home, remove, unique, wait_until

OWN = "azureml://datastores/workspaceblobstore/paths"
MAPPED = "https://datasets.example.invalid/public"
ROOT_USER = os.geteuid() == 0


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Folders of this machine: one that jobs may read, one they may write, copies of a web site, and one they may not reach."""
    root = tmp_path_factory.mktemp("places")
    for name in ("in/folder/sub", "out", "copies", "web", "private"):
        (root / name).mkdir(parents=True)
    (root / "in/file.txt").write_text("from-file")
    (root / "in/folder/a.txt").write_text("folder-a")
    (root / "in/folder/sub/b.txt").write_text("folder-b")
    (root / "copies/iris.csv").write_text("mapped-iris")
    (root / "web/page one.txt").write_text("from-web")
    (root / "private/secret.txt").write_text("private")
    (root / "in/leak.txt").symlink_to(root / "private/secret.txt")
    return root


@pytest.fixture(scope="module")
def server(places, mark):
    home = new_home("data")
    running = Server(home)
    (home / "config.yaml").write_text(
        f"inputs:\n  allow: ['{places}/in']\n  map:\n    '{MAPPED}': '{places}/copies'\noutputs:\n  allow: ['{places}/out']\n"
        # The stores of this suite are on loopback.
        "outgoing: {allow: [127.0.0.1]}\n"
    )
    running.up()
    patch = pytest.MonkeyPatch()
    for key, value in running.vars.items():
        patch.setenv(key, value)
    yield running
    patch.undo()
    try:
        running.down()
        running.assert_nothing_left(mark)
        verified = running.cli("verify", check=False)
        assert verified.returncode == 0, f"neap verify: {verified.stdout}{verified.stderr}"
    finally:
        remove(home)


@pytest.fixture(scope="module")
def ml(server):
    return MLClient(DefaultAzureCredential(), server.subscription, server.group, server.workspace)


@pytest.fixture(scope="module")
def work_cluster(server):
    name = unique("data")
    server.make_cluster(name, 0, 2, "PT1M")
    return name


@pytest.fixture(scope="module")
def azurite(tmp_path_factory):
    if why := stores.missing(stores.AZURITE):
        pytest.skip(why)
    running = stores.Azurite(tmp_path_factory.mktemp("azurite"))
    running.make("box")
    running.put("box", "in/a.txt", b"azure-a")
    running.put("box", "in/sub/b.txt", b"azure-b")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    if why := stores.missing(stores.MOTO):
        pytest.skip(why)
    running = stores.S3(tmp_path_factory.mktemp("s3"))
    running.make("bucket")
    running.put("bucket", "in/a.txt", b"s3-a")
    running.put("bucket", "in/sub/b.txt", b"s3-b")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def web(places):
    running = stores.Web(places / "web")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def blob_store(ml, azurite):
    ml.datastores.create_or_update(
        AzureBlobDatastore(
            name="emulated", account_name=azurite.account, container_name="box", endpoint=f"127.0.0.1:{azurite.port}", protocol="http",
            credentials=AccountKeyConfiguration(account_key=azurite.key),
        )
    )
    return "emulated"


@pytest.fixture(scope="module")
def s3_store(server, s3):
    answer = server.http(
        "PUT", f"{server.ws()}/datastores/moto",
        {"properties": {"datastoreType": "S3", "bucket": "bucket", "region": "us-east-1", "endpoint": s3.url,
                        "credentials": {"credentialsType": "AccessKey", "secrets": {"accessKeyId": s3.key_id, "secretAccessKey": s3.secret}}}},
    )
    assert answer.status_code == 201, answer.text
    assert s3.secret not in answer.text
    return "moto"


@pytest.fixture(scope="module")
def folder_store(server, places):
    answer = server.http("PUT", f"{server.ws()}/datastores/shelf", {"properties": {"datastoreType": "LocalFolder", "path": f"{places}/out"}})
    assert answer.status_code == 201, answer.text
    return "shelf"


@pytest.fixture
def send(ml, mark, work_cluster):
    def submit(line, **kwargs):
        kwargs.setdefault("name", unique("data"))
        variables = {"NEAP_TEST_MARK": mark, **kwargs.pop("variables", {})}
        return ml.jobs.create_or_update(
            command(
                command=line, compute=work_cluster, experiment_name="data", environment_variables=variables,
                environment=Environment(image="library/python:latest"), **kwargs,
            )
        ).name

    return submit


@pytest.fixture
def run(send, server):
    """Runs a job to its end and gives its log."""

    def to_the_end(line, seconds=90, wanted="Completed", **kwargs):
        name = send(line, **kwargs)
        server.wait_job(name, wanted, seconds)
        return name, server.log(name)

    return to_the_end


def show(inputs):
    """A command that prints what each input holds."""
    return " && ".join(f'for f in $(find -L "${{{{inputs.{n}}}}}" -type f | sort); do echo "{n}: $(basename $f) $(cat $f)"; done' for n in inputs)


def upload(ml, tmp_path, name, files, kind="uri_folder"):
    """A data asset made of local files, by the SDK."""
    folder = tmp_path / name
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    path = folder / next(iter(files)) if kind == "uri_file" else folder
    return ml.data.create_or_update(Data(name=name, type=kind, path=str(path)))


# --- sources ------------------------------------------------------------------------------------------------------


def test_every_source_that_is_near(ml, run, server, tmp_path):
    asset = upload(ml, tmp_path, unique("asset"), {"x.txt": "asset-x", "sub/y.txt": "asset-y"})
    first, _ = run(
        "echo out-text > ${{outputs.o}}/o.txt && mkdir -p outputs/model && echo art-text > outputs/model/m.txt", outputs={"o": Output(type="uri_folder")}
    )
    long = f"azureml://subscriptions/{server.subscription}/resourcegroups/{server.group}/workspaces/{server.workspace}/datastores/workspaceblobstore/paths"
    inputs = {
        "short": Input(type="uri_folder", path=f"{OWN}/azureml/{first}/o"),
        "long": Input(type="uri_file", path=f"{long}/azureml/{first}/o/o.txt"),
        "version": Input(type="uri_folder", path=f"azureml:{asset.name}:{asset.version}"),
        "latest": Input(type="uri_folder", path=f"azureml:{asset.name}@latest"),
        "output": Input(type="uri_folder", path=f"azureml://jobs/{first}/outputs/o"),
        "inside": Input(type="uri_file", path=f"azureml://jobs/{first}/outputs/artifacts/paths/outputs/model/m.txt"),
        "mapped": Input(type="uri_file", path=f"{MAPPED}/iris.csv"),
        "model": Input(type="custom_model", path=f"azureml://jobs/{first}/outputs/artifacts/paths/outputs/model"),
        "one": Input(type="custom_model", path=f"azureml://jobs/{first}/outputs/artifacts/paths/outputs/model/m.txt"),
    }
    _, log = run(show(inputs), inputs=inputs)
    for line in (
        "short: o.txt out-text", "long: o.txt out-text", "version: x.txt asset-x", "version: y.txt asset-y", "latest: x.txt asset-x",
        "output: o.txt out-text", "inside: m.txt art-text", "mapped: iris.csv mapped-iris",
        "model: m.txt art-text", "one: m.txt art-text",
    ):
        assert line in log, f"{line}\n{log}"


def test_paths_of_this_machine_and_runs(server, work_cluster, run, places):
    """By REST: the SDK takes a path without a scheme for one of its own machine, and does not know file:."""
    first, _ = run("mkdir -p outputs && echo art > outputs/a.txt")
    name = server.submit(
        work_cluster,
        'cat "$AZURE_ML_INPUT_plain" "$AZURE_ML_INPUT_file"; cat "$AZURE_ML_INPUT_folder"/sub/b.txt; cat "$AZURE_ML_INPUT_run"/a.txt',
        inputs={
            "plain": {"jobInputType": "uri_file", "uri": f"{places}/in/file.txt"},
            "file": {"jobInputType": "uri_file", "uri": f"file://{places}/in/folder/a.txt"},
            "folder": {"jobInputType": "uri_folder", "uri": f"{places}/in/folder"},
            "run": {"jobInputType": "custom_model", "uri": f"runs:/{first}/outputs"},
        },
    )
    server.wait_job(name, "Completed")
    for text in ("from-file", "folder-a", "folder-b", "art"):
        assert text in server.log(name)


def test_a_web_address_and_its_query(run, web, server):
    _, log = run('cat "${{inputs.page}}"', inputs={"page": Input(type="uri_file", path=f"{web.url}/page%20one.txt?sig=not-for-logs")})
    assert "from-web" in log
    assert any("sig=not-for-logs" in path for path in web.asked), web.asked
    assert "not-for-logs" not in log
    assert "not-for-logs" not in (server.home / "logs" / "server.log").read_text(errors="replace")


def test_azure_blobs(run, ml, blob_store, azurite, server):
    account = azurite.account
    # The emulator speaks the blob protocol, and so does Neap to a lake.
    server.put(
        f"{server.ws()}/datastores/lake",
        {"properties": {"datastoreType": "AzureDataLakeGen2", "accountName": account, "filesystem": "box", "endpoint": f"127.0.0.1:{azurite.port}", "protocol": "http",
                        "credentials": {"credentialsType": "AccountKey", "secrets": {"secretsType": "AccountKey", "key": azurite.key}}}},
    )
    inputs = {
        "folder": Input(type="uri_folder", path=f"azureml://datastores/{blob_store}/paths/in"),
        "file": Input(type="uri_file", path=f"azureml://datastores/{blob_store}/paths/in/sub/b.txt", mode="download"),
        "wasbs": Input(type="uri_folder", path=f"wasbs://box@{account}.blob.core.windows.net/in"),
        "abfss": Input(type="uri_file", path=f"abfss://box@{account}.dfs.core.windows.net/in/a.txt"),
        "lake": Input(type="uri_folder", path="azureml://datastores/lake/paths/in/sub"),
        "https": Input(type="uri_folder", path=f"https://{account}.blob.core.windows.net/box/in/sub"),
    }
    line = show(inputs) + ' && mkdir "${{outputs.o}}"/deep && echo to-azure > "${{outputs.o}}"/deep/o.txt && env'
    name, log = run(line, inputs=inputs, outputs={"o": Output(type="uri_folder", path=f"azureml://datastores/{blob_store}/paths/made/${{{{name}}}}")})
    for text in ("folder: a.txt azure-a", "folder: b.txt azure-b", "file: b.txt azure-b", "wasbs: a.txt azure-a", "abfss: a.txt azure-a", "lake: b.txt azure-b", "https: b.txt azure-b"):
        assert text in log, log
    assert azurite.get("box", f"made/{name}/deep/o.txt") == b"to-azure\n"
    for text in (log, (server.home / "logs" / "server.log").read_text(errors="replace")):
        assert azurite.key not in text


def test_s3(run, s3_store, s3, server, ml):
    inputs = {
        "folder": Input(type="uri_folder", path=f"azureml://datastores/{s3_store}/paths/in/"),
        "direct": Input(type="uri_file", path="s3://bucket/in/sub/b.txt"),
    }
    name, log = run(
        show(inputs) + " && echo to-s3 > ${{outputs.o}}", inputs=inputs, outputs={"o": Output(type="uri_file", path=f"azureml://datastores/{s3_store}/paths/made/one.txt")}
    )
    for text in ("folder: a.txt s3-a", "folder: b.txt s3-b", "direct: b.txt s3-b"):
        assert text in log, log
    assert s3.get("bucket", "made/one.txt") == b"to-s3\n"
    assert s3.secret not in log + (server.home / "logs" / "server.log").read_text(errors="replace")
    # The SDK has no word for S3: it sees a container of this server, and can use it.
    seen = ml.datastores.get(s3_store)
    assert (seen.type, seen.container_name) == ("AzureBlob", f"~store.{s3_store}")
    ml.jobs.download(name, download_path=server.home / "got", output_name="o")
    assert [p.read_text() for p in (server.home / "got").rglob("one.txt")] == ["to-s3\n"]


def test_a_folder_of_this_machine_as_a_datastore(run, folder_store, places):
    name, _ = run(
        "echo kept > ${{outputs.o}}/o.txt && mkdir ${{outputs.o}}/empty && ln -s /etc/passwd ${{outputs.o}}/leak",
        outputs={"o": Output(type="uri_folder", path=f"azureml://datastores/{folder_store}/paths/runs/${{{{name}}}}/${{{{output_name}}}}")},
    )
    made = places / "out" / "runs" / name / "o"
    assert (made / "o.txt").read_text() == "kept\n"
    assert (made / "empty").is_dir()
    assert not (made / "leak").exists()
    _, log = run(show(["x"]) + " && ls -d ${{inputs.x}}/empty", inputs={"x": Input(type="uri_folder", path=f"azureml://datastores/{folder_store}/paths/runs/{name}/o")})
    assert "x: o.txt kept" in log


# --- modes --------------------------------------------------------------------------------------------------------


def test_modes_of_inputs(ml, run, tmp_path, server):
    asset = upload(ml, tmp_path, unique("modes"), {"keep.txt": "keep", "change.txt": "before", "drop.txt": "drop"})
    path = asset.path
    line = (
        "echo x >> ${{inputs.own}}/keep.txt && cat ${{inputs.own}}/keep.txt"
        "; if echo x >> ${{inputs.ro}}/keep.txt; then echo ro-was-written; fi; cat ${{inputs.ro}}/keep.txt"
        "; echo after > ${{inputs.rw}}/change.txt; rm ${{inputs.rw}}/drop.txt; echo new > ${{inputs.rw}}/added.txt"
        "; echo direct=${{inputs.uri}}"
    )
    name, log = run(
        line,
        inputs={
            "own": Input(type="uri_folder", path=path, mode="download"), "ro": Input(type="uri_folder", path=path, mode="ro_mount"),
            "rw": Input(type="uri_folder", path=path, mode="rw_mount"), "uri": Input(type="uri_folder", path=path, mode="direct"),
        },
    )
    assert f"direct={path}" in log
    if ROOT_USER:
        assert "ro-was-written" not in log, "the job's user may not write what it is given read-only"
    _, log = run(show(["x"]), inputs={"x": Input(type="uri_folder", path=path)})
    assert "x: keep.txt keep" in log and "x: change.txt after" in log and "x: added.txt new" in log
    assert "drop.txt" not in log, "what the job deleted in a writable input is deleted"


def test_an_mltable_and_what_it_names(server, work_cluster, ml, tmp_path):
    table = "type: mltable\npaths:\n  - file: ./a.csv\n  - pattern: ./deep/*.csv\ntransformations:\n  - read_delimited:\n      delimiter: ','\n      encoding: utf8\n"
    asset = upload(ml, tmp_path, unique("table"), {"MLTable": table, "a.csv": "aa", "b.csv": "bb", "deep/c.csv": "cc", "deep/d.txt": "dd"})
    uri = asset.path
    line = 'cd "$AZURE_ML_INPUT_whole" && echo whole: $(find . -type f | sort | tr "\\n" " "); cd "$AZURE_ML_INPUT_named" && echo named: $(find . -type f | sort | tr "\\n" " ")'
    name = server.submit(
        work_cluster, line,
        inputs={"whole": {"jobInputType": "mltable", "uri": uri}, "named": {"jobInputType": "mltable", "uri": uri, "mode": "EvalMount"}},
    )
    server.wait_job(name, "Completed")
    log = server.log(name)
    assert "whole: ./MLTable ./a.csv ./b.csv ./deep/c.csv ./deep/d.txt" in log
    assert "named: ./a.csv ./deep/c.csv\n" in log.replace(" \n", "\n")


def test_literals_as_azure_renders_them(server, work_cluster):
    literal = lambda value: {"jobInputType": "literal", "value": value}  # noqa: E731
    name = server.submit(
        work_cluster, "echo ${{inputs.i}} ${{inputs.f}} ${{inputs.e}} ${{inputs.b}} '${{inputs.s}}' $AZURE_ML_INPUT_b",
        inputs={"i": literal(3), "f": literal(0.5), "e": literal(0.00001), "b": literal(True), "s": literal("a b")},
    )
    server.wait_job(name, "Completed")
    assert "3 0.5 1e-05 True a b True" in server.log(name)


# --- outputs ------------------------------------------------------------------------------------------------------


def test_an_output_becomes_a_data_asset_and_a_model(ml, run):
    table, model = unique("table"), unique("model")
    outputs = {
        "t": Output(type="uri_file", name=table, version="7"),
        "f": Output(type="uri_folder", name=f"{table}-auto"),
        "m": Output(type="custom_model", name=model),
    }
    line = "echo 1,2 > ${{outputs.t}} && echo x > ${{outputs.f}}/x && echo weights > ${{outputs.m}}/w.bin"
    name, _ = run(line, outputs=outputs)
    found = ml.data.get(table, version="7")
    assert (found.type, found.path.endswith(f"/azureml/{name}/t/t")) == ("uri_file", True), found.path
    assert ml.data.get(f"{table}-auto", label="latest").version == "1"
    registered = ml.models.get(model, version="1")
    assert (registered.type, registered.path.endswith(f"/azureml/{name}/m/"), registered.job_name) == ("custom_model", True, name)
    # Once more: an open version gets the next number.
    again, log = run(show(["t", "m"]), inputs={"t": Input(type="uri_file", path=f"azureml:{table}:7"), "m": Input(type="custom_model", path=f"azureml:{model}@latest")})
    assert "t: t 1,2" in log and "m: w.bin weights" in log
    run("echo y > ${{outputs.f}}/y", outputs={"f": Output(type="uri_folder", name=f"{table}-auto")})
    assert ml.data.get(f"{table}-auto", label="latest").version == "2"


def test_a_job_that_fails_registers_nothing(ml, run):
    name = unique("never")
    run("echo x > ${{outputs.o}}/x; exit 3", wanted="Failed", outputs={"o": Output(type="uri_folder", name=name)})
    with pytest.raises(ResourceNotFoundError):
        ml.data.get(name, version="1")


def test_places_of_outputs(ml, run, server, tmp_path):
    shared = unique("shared")
    line = "echo $1 > ${{outputs.explicit}}/$NAME.txt; ls ${{outputs.explicit}}; mkdir -p ${{outputs.plain}}/empty; echo art > ${{outputs.artifacts}}/extra.txt; mkdir -p outputs logs; echo o > outputs/o.txt; echo l > logs/l.txt; echo direct=${{outputs.self}}"
    outputs = {
        "explicit": Output(type="uri_folder", path=f"azureml://datastores/${{{{default_datastore}}}}/paths/{shared}/${{{{output_name}}}}"),
        "plain": Output(type="uri_folder", mode="upload"),
        "artifacts": Output(type="uri_folder"),
        "self": Output(type="uri_folder", mode="direct"),
    }
    first, _ = run(line, outputs=outputs, variables={"NAME": "one"})
    second, log = run(line, outputs=outputs, variables={"NAME": "two"})
    assert "one.txt" in log, "a writable mount shows what is there already"
    assert f"/paths/azureml/{second}/self/" in log
    ml.jobs.download(second, download_path=tmp_path, all=True)
    names = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    for wanted in ("artifacts/outputs/o.txt", "artifacts/logs/l.txt", "artifacts/extra.txt", "named-outputs/explicit/one.txt", "named-outputs/explicit/two.txt"):
        assert wanted in names, sorted(names)
    _, log = run("ls -d ${{inputs.plain}}/empty", inputs={"plain": Input(type="uri_folder", path=f"azureml://jobs/{second}/outputs/plain")})
    assert "/empty" in log


def test_an_output_folder_that_stayed_empty_is_an_input(run):
    name, _ = run("true", outputs={"o": Output(type="uri_folder")})
    _, log = run("echo n=$(ls ${{inputs.o}} | wc -l)", inputs={"o": Input(type="uri_folder", path=f"azureml://jobs/{name}/outputs/o")})
    assert "n=0" in log


# --- what is refused, and what fails ----------------------------------------------------------------------------------


def refusal(server, work_cluster, inputs=None, outputs=None):
    server.environment_id()
    name = unique("bad")
    body = server.job_body(work_cluster, "true", inputs=inputs or {}, outputs=outputs or {})
    answer = server.http("PUT", f"{server.ws()}/jobs/{name}", body)
    assert answer.status_code == 400, answer.text
    assert server.http("GET", f"{server.ws()}/jobs/{name}").status_code == 404, "nothing is left behind"
    error = answer.json()["error"]
    return [error["message"], *(d["message"] for d in error.get("details") or [])]


def test_every_bad_input_is_named_at_once(server, work_cluster, run, places):
    first, _ = run("echo x > ${{outputs.o}}/file.txt", outputs={"o": Output(type="uri_folder")})
    there = f"{OWN}/azureml/{first}/o"
    told = "\n".join(
        refusal(
            server, work_cluster,
            inputs={
                "lost": {"jobInputType": "uri_file", "uri": f"{OWN}/nothing/here.csv"},
                "nofile": {"jobInputType": "uri_file", "uri": f"{MAPPED}/missing.csv"},
                "folder_as_file": {"jobInputType": "uri_file", "uri": there},
                "file_as_folder": {"jobInputType": "uri_folder", "uri": f"{there}/file.txt"},
                "scheme": {"jobInputType": "uri_file", "uri": "gopher://host/x"},
                "private": {"jobInputType": "uri_file", "uri": f"file://{places}/private/secret.txt"},
                "up": {"jobInputType": "uri_file", "uri": f"{places}/in/../private/secret.txt"},
                "store": {"jobInputType": "uri_folder", "uri": "azureml://datastores/nowhere/paths/x"},
                "asset": {"jobInputType": "uri_folder", "uri": "azureml:nobody:1"},
                "kind": {"jobInputType": "uri_thing", "uri": there},
                "mode": {"jobInputType": "uri_folder", "uri": there, "mode": "Sideways"},
            },
            outputs={"o": {"jobOutputType": "uri_folder", "uri": "https://example.invalid/x"}},
        )
    )
    for words in (
        "'lost'", "'nofile'", "say uri_folder", "say uri_file", "gopher", "inputs.allow", "'.' or '..'", "datastore 'nowhere'", "nobody", "uri_thing", "'mode'", "cannot be written",
    ):
        assert words in told, f"{words}\n{told}"


def test_a_link_that_leads_out_of_an_allowed_folder_is_not_followed(server, work_cluster, places):
    name = server.submit(work_cluster, "true", inputs={"x": {"jobInputType": "uri_file", "uri": f"{places}/in/leak.txt"}})
    server.wait_job(name, "Failed")
    assert "input x" in server.job(name)["error"]["message"]


def test_what_is_missing_elsewhere_is_refused_before_there_is_a_node(server, work_cluster, blob_store, web):
    for uri in (f"azureml://datastores/{blob_store}/paths/none/x.csv", f"{web.url}/none.csv"):
        told = refusal(server, work_cluster, inputs={"wanted": {"jobInputType": "uri_file", "uri": uri}})
        assert "The input 'wanted' cannot be read: there is nothing at" in told[0], told


def test_what_goes_missing_later_fails_as_input_data(server, web, places):
    name = unique("gone")
    server.make_cluster(name, 0, 0)
    soon = places / "web" / "soon.csv"
    soon.write_text("x")
    job = server.submit(name, "true", inputs={"wanted": {"jobInputType": "uri_file", "uri": f"{web.url}/soon.csv"}})
    soon.unlink()
    server.make_cluster(name, 0, 1)
    server.wait_job(job, "Failed")
    told = server.job(job)
    assert "input wanted" in told["error"]["message"], told["error"]
    assert told["properties"]["neap.failureClass"] == "input data", told["properties"]
    server.drop_cluster(name)


# --- size -----------------------------------------------------------------------------------------------------------


def resident_mb(pid, field="VmRSS"):
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) // 1024


def test_200_mb_do_not_grow_the_server(run, server, s3_store, s3):
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    before = resident_mb(server.pid)
    size = 200 << 20
    outputs = {"own": Output(type="uri_file", mode="upload"), "far": Output(type="uri_folder", path=f"azureml://datastores/{s3_store}/paths/big")}
    name, _ = run(f"truncate -s {size} ${{{{outputs.own}}}} && truncate -s {size} ${{{{outputs.far}}}}/big.bin", 280, outputs=outputs)
    digest = hashlib.sha256(bytes(size)).hexdigest()
    _, log = run(
        "sha256sum ${{inputs.own}} ${{inputs.far}}", 280,
        inputs={"own": Input(type="uri_file", path=f"azureml://jobs/{name}/outputs/own"), "far": Input(type="uri_file", path=f"azureml://datastores/{s3_store}/paths/big/big.bin")},
    )
    assert log.count(digest) == 2, log
    grown = resident_mb(server.pid, "VmHWM") - before
    assert grown < 120, f"the server grew by {grown} MB for files of 200 MB"


# --- assets and datastores by the SDK -----------------------------------------------------------------------------------


def test_data_assets(ml, tmp_path):
    name = unique("d")
    upload(ml, tmp_path, name, {"x.txt": "1"})
    ml.data.create_or_update(Data(name=name, type="uri_folder", path=f"{OWN}/elsewhere", description="second", tags={"a": "b"}))
    assert sorted(d.version for d in ml.data.list(name=name)) == ["1", "2"]
    assert ml.data.get(name, label="latest").description == "second"
    assert name in {d.name for d in ml.data.list()}
    ml.data.archive(name, version="2")
    assert [d.version for d in ml.data.list(name=name)] == ["1"]
    assert ml.data.get(name, label="latest").version == "1"
    ml.data.restore(name, version="2")
    assert len(list(ml.data.list(name=name))) == 2
    ml.data.archive(name)
    assert name not in {d.name for d in ml.data.list()}
    ml.data.restore(name)
    assert name in {d.name for d in ml.data.list()}
    with pytest.raises(HttpResponseError, match="never changes"):
        ml.data.create_or_update(Data(name=name, version="2", type="uri_folder", path=f"{OWN}/other"))


def test_models(ml, tmp_path):
    name = unique("m")
    (tmp_path / "w.bin").write_bytes(b"weights")
    made = ml.models.create_or_update(Model(name=name, type="custom_model", path=str(tmp_path / "w.bin"), tags={"k": "v"}))
    assert (made.version, made.type, made.tags) == ("1", "custom_model", {"k": "v"})
    ml.models.create_or_update(Model(name=name, type="mlflow_model", path=f"{OWN}/some/model"))
    assert sorted(m.version for m in ml.models.list(name=name)) == ["1", "2"]
    assert ml.models.get(name, label="latest").type == "mlflow_model"
    ml.models.archive(name, version="2")
    assert [m.version for m in ml.models.list(name=name)] == ["1"]
    ml.models.restore(name, version="2")
    ml.models.download(name, version="1", download_path=tmp_path / "got")
    assert [p.read_bytes() for p in (tmp_path / "got").rglob("w.bin")] == [b"weights"]
    assert name in {m.name for m in ml.models.list()}


def test_datastores(ml, server):
    from azure.ai.ml.entities import SasTokenConfiguration

    key = unique("a2V5")
    for name, credentials in (("keyed", AccountKeyConfiguration(account_key=key)), ("signed", SasTokenConfiguration(sas_token="sv=1&sig=abc")), ("open_one", None)):
        ml.datastores.create_or_update(AzureBlobDatastore(name=name, account_name="someaccount", container_name="c", credentials=credentials))
    assert {"keyed", "signed", "open_one", "workspaceblobstore"} <= {d.name for d in ml.datastores.list()}
    assert ml.datastores.get("keyed", include_secrets=True).credentials.account_key == key
    assert getattr(ml.datastores.get("keyed").credentials, "account_key", None) is None
    assert ml.datastores.get_default().name == "workspaceblobstore"
    ml.datastores.delete("keyed")
    with pytest.raises(ResourceNotFoundError):
        ml.datastores.get("keyed")
    assert key not in "".join(p.read_text(errors="replace") for p in (server.home / "logs").glob("*"))
    for body, word in (
        ({"datastoreType": "S3"}, "bucket"), ({"datastoreType": "LocalFolder", "path": "/etc"}, "inputs.allow"),
        ({"datastoreType": "AzureBlob", "accountName": "a", "containerName": "c", "credentials": {"credentialsType": "AccountKey"}}, "key"),
    ):
        answer = server.http("PUT", f"{server.ws()}/datastores/bad", {"properties": body})
        assert answer.status_code == 400 and word in answer.text, answer.text


def test_outputs_are_registered_once_when_the_server_dies(server, run, send, ml):
    """The end of the job and its asset are one commit: whenever the server dies, there is one version or none yet."""
    asset = unique("once")
    name = send("sleep 1; echo x > ${{outputs.o}}/x", outputs={"o": Output(type="uri_folder", name=asset)})
    server.wait_job(name, "Running")
    wait_until(lambda: server.status(name) != "Running", "the job is about to end", 30, 0.02)
    server.kill()
    server.up()
    server.wait_job(name, "Completed")
    assert [d.version for d in ml.data.list(name=asset)] == ["1"]
