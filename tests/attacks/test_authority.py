"""Somebody stole the key of the installation's certificate authority, or an old bundle is still in use.

The attacker has `identity/ca.key` and wants to pose as another site towards clients that trust the bundle (which also replaces the
system's roots in their shells). What stops them: name constraints in the authority's certificate, checked by the clients' own TLS
libraries (crates/identity/src/authority/root.rs). The other half is that nobody is locked out: data folders of earlier releases have an
authority without limits, and servers get new names.
"""

import datetime
import ipaddress
import shutil
import socket
import ssl
import subprocess
import threading

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aftermath import assert_serving
from neapserver import Server, new_home, remove, unique

NOW = datetime.datetime.now(datetime.timezone.utc)


def name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(subject, key, issuer, days=30):
    made = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(issuer).public_key(key.public_key()).serial_number(x509.random_serial_number())
    return made.not_valid_before(NOW - datetime.timedelta(hours=2)).not_valid_after(NOW + datetime.timedelta(days=days))


def pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def old_authority(folder, days=3650):
    """What releases before name constraints made: a CA that may vouch for everything."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = certificate("Neap local CA", key, name("Neap local CA"), days)
    usage = dict.fromkeys(["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"], False)
    made = (
        builder.add_extension(x509.BasicConstraints(True, 0), True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "ca.key").write_bytes(pem(key))
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return made


@pytest.fixture(scope="module")
def server(mark):
    """A data folder of an earlier release, at its first start with this one."""
    home = new_home("ca")
    home.chmod(0o700)
    old_authority(home / "identity")
    shutil.copy(home / "identity" / "ca.pem", home / "old-ca.pem")
    running = Server(home)
    running.up()
    yield running
    running.cli("down", "--grace", "1", check=False, timeout=90)
    running.assert_nothing_left(mark)
    remove(home)


def authority(server):
    return x509.load_pem_x509_certificate((server.home / "identity" / "ca.pem").read_bytes())


def status(url, bundle):
    return requests.get(f"{url}/neap/v1/status", verify=str(bundle), timeout=10).status_code


def handshake(address, port, bundle, hostname):
    context = ssl.create_default_context(cafile=str(bundle))
    with socket.create_connection((address, port), timeout=10) as plain, context.wrap_socket(plain, server_hostname=hostname):
        return True


def test_an_authority_without_limits_is_replaced_and_old_clients_go_on(server):
    limits = authority(server).extensions.get_extension_for_class(x509.NameConstraints)
    permitted = [str(subtree.value) for subtree in limits.value.permitted_subtrees]
    assert limits.critical and "localhost" in permitted and "127.0.0.1/32" in permitted
    old = x509.load_pem_x509_certificate((server.home / "old-ca.pem").read_bytes())
    assert authority(server).public_key() == old.public_key()
    for bundle in (server.home / "old-ca.pem", server.home / "identity" / "ca.pem", server.vars["REQUESTS_CA_BUNDLE"]):
        assert status(server.url, bundle) == 401
        assert handshake("127.0.0.1", server.port, bundle, "localhost")
    cluster = unique("ca")
    server.make_cluster(cluster, 0, 1, "PT30S")
    assert_serving(server, cluster)


@pytest.mark.parametrize("host", ["bank.example", "8.8.8.8"])
def test_a_stolen_key_vouches_for_no_other_site(server, host, tmp_path):
    signer = serialization.load_pem_private_key((server.home / "identity" / "ca.key").read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = certificate(host, key, authority(server).subject)
    try:
        entry = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        entry = x509.DNSName(host)
    identifier = authority(server).extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    forged = (
        builder.add_extension(x509.SubjectAlternativeName([entry]), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False)
        .sign(signer, hashes.SHA256())
    )
    chain = tmp_path / "forged.pem"
    chain.write_bytes(pem(key) + forged.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for _ in range(3):
                try:
                    plain, _ = listener.accept()
                    with context.wrap_socket(plain, server_side=True):
                        pass
                except OSError:
                    continue

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        bundle = server.vars["REQUESTS_CA_BUNDLE"]
        # The same certificate fools a client that still has the authority of the earlier release: the test is a test.
        assert handshake("127.0.0.1", port, server.home / "old-ca.pem", host)
        with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
            handshake("127.0.0.1", port, bundle, host)
        if shutil.which("node"):
            script = f"require('tls').connect({{host:'127.0.0.1',port:{port},servername:{'undefined' if host[0].isdigit() else repr(host)},checkServerIdentity:()=>undefined,ca:require('fs').readFileSync({bundle!r})}}).on('secureConnect',()=>{{console.log('trusted');process.exit()}}).on('error',e=>{{console.log('refused '+e.code+' '+e.message);process.exit()}})"
            said = subprocess.run(["node", "-e", script], capture_output=True, text=True, timeout=20).stdout.strip()
            assert said.startswith("refused") and "permitted subtree violation" in said, said


def test_a_client_with_another_bundle_is_told_what_to_do(server, tmp_path):
    old_authority(tmp_path / "other")
    variables = {**server.vars, "REQUESTS_CA_BUNDLE": str(tmp_path / "other" / "ca.pem"), "NEAP_HOME": str(tmp_path / "nothing")}
    told = server.cli("compute", "list", check=False, env=variables)
    assert told.returncode == 4
    assert "certificate authority changed" in told.stderr and "neap env" in told.stderr and "ca.pem" in told.stderr, told.stderr


def test_a_new_name_changes_the_authority_and_old_names_go_on(server, tmp_path):
    before = tmp_path / "before.pem"
    shutil.copy(server.home / "identity" / "ca.pem", before)
    server.cli("down", "--grace", "1", timeout=90)
    server.cli("up", "--data", server.home, "--listen", f"127.0.0.2:{server.port}", "--detach", timeout=60)
    now = server.home / "identity" / "ca.pem"
    assert now.read_bytes() != before.read_bytes()
    url = f"https://127.0.0.2:{server.port}"
    assert status(url, now) == 401
    # A name that the old bundle knows is served with a certificate that has no other.
    assert handshake("127.0.0.2", server.port, before, "localhost") and handshake("127.0.0.2", server.port, now, "localhost")
    with pytest.raises(requests.exceptions.SSLError):
        status(url, before)
    variables = {**server.vars, "NEAP_URL": url, "IDENTITY_ENDPOINT": f"{url}/msi/token", "REQUESTS_CA_BUNDLE": str(before), "NEAP_HOME": str(tmp_path / "nothing")}
    told = server.cli("compute", "list", check=False, env=variables)
    assert told.returncode == 4 and "which the server got later" in told.stderr and "neap env" in told.stderr, told.stderr
