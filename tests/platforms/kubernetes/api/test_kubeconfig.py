"""kubectl's conventions: which files, which context, which credentials, and what is wrong there."""

import base64
import os
from pathlib import Path

import pytest
import yaml
from support.fake_api import Answer, FakeApi

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api import transport as module
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.transport import find_access

CA = "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user with nothing but what a test writes."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return home


def config(name="blue", user=None, namespace=None, current=True, **cluster):
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **cluster}}],
        "users": [{"name": name, "user": {"token": "secret"} if user is None else user}],
        "contexts": [{"name": name, "context": context}],
        **({"current-context": name} if current else {}),
    }


@pytest.fixture
def write(tmp_path):
    def write(content, name="config"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(path)

    return write


def login(access):
    """The header that requests carry."""
    found = access.configuration.auth_settings().get("BearerToken")
    return None if found is None else found["value"]


class TestWhichFile:
    def test_the_default_is_in_the_home_folder(self, home):
        (home / ".kube").mkdir()
        (home / ".kube" / "config").write_text(yaml.safe_dump(config()))
        access = find_access()
        assert (access.configuration.host, access.namespace) == ("https://blue:6443", "default")
        assert access.source == str(home / ".kube" / "config")

    def test_the_variable_names_several_which_are_merged(self, write, monkeypatch):
        red = config("red", namespace="team", current=False)
        paths = [write(config(), "one"), "/not/there", write(red, "two"), ""]
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(paths))
        assert find_access().configuration.host == "https://blue:6443"
        other = find_access(context="red")
        assert (other.configuration.host, other.namespace) == ("https://red:6443", "team")

    def test_the_first_that_says_so_chooses_the_context(self, write, monkeypatch):
        paths = [write(config("red", current=False), "one"), write(config(), "two")]
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(paths))
        assert find_access().configuration.host == "https://blue:6443"

    def test_the_flag_wins_over_the_variable(self, write, monkeypatch):
        monkeypatch.setenv("KUBECONFIG", write(config(), "one"))
        assert find_access(write(config("red"), "two")).configuration.host == "https://red:6443"

    def test_a_pod_is_who_its_account_is(self, tmp_path, monkeypatch):
        account = tmp_path / "account"
        account.mkdir()
        for name, text in {"token": "pod-token", "ca.crt": CA, "namespace": "team\n"}.items():
            (account / name).write_text(text)
        library = "kubernetes.config.incluster_config"
        monkeypatch.setattr(f"{library}.SERVICE_TOKEN_FILENAME", str(account / "token"))
        monkeypatch.setattr(f"{library}.SERVICE_CERT_FILENAME", str(account / "ca.crt"))
        monkeypatch.setattr(module, "_ACCOUNT_PATH", account)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        access = find_access()
        assert (access.configuration.host, access.namespace) == ("https://10.96.0.1:443", "team")
        assert login(access).lower() == "bearer pod-token"


class TestTrustAndLogin:
    def test_a_certificate_may_be_in_the_file(self, write):
        data = base64.b64encode(CA.encode()).decode()
        access = find_access(write(config(**{"certificate-authority-data": data})))
        assert Path(access.configuration.ssl_ca_cert).read_text() == CA
        assert access.configuration.verify_ssl

    def test_a_certificate_may_be_beside_the_file(self, write, tmp_path):
        write(CA, "ca.crt")
        access = find_access(write(config(**{"certificate-authority": "ca.crt"})))
        assert access.configuration.ssl_ca_cert == str(tmp_path / "ca.crt")

    def test_who_asks_for_it_trusts_everybody(self, write):
        access = find_access(write(config(**{"insecure-skip-tls-verify": True})))
        assert access.configuration.verify_ssl is False

    def test_a_token_may_be_here_or_in_a_file(self, write):
        assert login(find_access(write(config()))) == "Bearer secret"
        user = {"tokenFile": write("from-file", "token")}
        assert login(find_access(write(config(user=user)))) == "Bearer from-file"

    def test_a_name_and_a_password(self, write):
        access = find_access(write(config(user={"username": "jane", "password": "x"})))
        assert login(access) == "Basic " + base64.b64encode(b"jane:x").decode()

    def test_a_program_logs_in_and_its_token_is_sent(self, write, tmp_path):
        answer = (
            '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
            '"status": {"token": "from-program"}}'
        )
        with FakeApi(Answer()) as api:
            content = config(user=self._program(tmp_path, f"echo '{answer}'"))
            content["clusters"][0]["cluster"]["server"] = api.url
            Cluster(find_access(write(content))).get("/version")
            assert api.requests[0].headers["Authorization"] == "Bearer from-program"

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("echo expired >&2; exit 3", r"process returned 3\. expired"),
            ("echo no-json", "failed to decode process output"),
            ('echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
             '"status": {}}\'', "missing token or clientCertificateData"),
        ],
    )  # fmt: skip
    def test_a_program_that_cannot_is_an_error_and_not_nobody(self, write, tmp_path, script, words):
        with pytest.raises(PlatformError, match=f"config: nobody is logged in: .*{words}"):
            find_access(write(config(user=self._program(tmp_path, script))))

    def test_a_program_that_is_not_there_is_named(self, write):
        user = self._exec("/no/such/program")
        with pytest.raises(PlatformError, match="/no/such/program"):
            find_access(write(config(user=user)))

    def _program(self, folder, script):
        path = folder / "login"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return self._exec(str(path))

    def _exec(self, command):
        version = "client.authentication.k8s.io/v1"
        return {"exec": {"apiVersion": version, "command": command, "interactiveMode": "Never"}}


class TestWhatIsWrong:
    def test_nothing_is_configured(self, monkeypatch, tmp_path):
        monkeypatch.setattr(module, "_ACCOUNT_PATH", tmp_path)
        with pytest.raises(PlatformError, match=r"no Kubernetes cluster .* --platform"):
            find_access()

    @pytest.mark.parametrize("path", ["/not/there", "a" * 300, "~no-such-user/config"])
    def test_a_file_that_is_not_there(self, monkeypatch, tmp_path, path):
        with pytest.raises(PlatformError, match=f"kubeconfig {path} is not there: name another"):
            find_access(path)
        monkeypatch.setattr(module, "_ACCOUNT_PATH", tmp_path)
        monkeypatch.setenv("KUBECONFIG", path)
        with pytest.raises(PlatformError, match="no Kubernetes cluster is configured"):
            find_access()

    def test_a_context_without_a_file(self):
        with pytest.raises(PlatformError, match="'blue' is asked for, and there is no kubeconfig"):
            find_access(context="blue")

    def test_a_context_that_is_not_there(self, write):
        with pytest.raises(PlatformError, match=r"name green .*: mend it, or name another"):
            find_access(write(config()), "green")

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            pytest.param("", "file is empty", id="empty"),
            pytest.param("a: [", "expected the node content", id="no-yaml"),
            pytest.param("just text", "cannot be used: ", id="no-mapping"),
            pytest.param({"kind": "Config"}, "current-context", id="bare"),
            pytest.param(config(current=False), "current-context", id="no-current-context"),
            pytest.param({**config(), "users": []}, "there is no user 'blue', whom the context",
                         id="no-such-user"),
            pytest.param({**config(), "clusters": config("red")["clusters"]}, "'blue'|blue",
                         id="no-such-cluster"),
            pytest.param(config(server=""), "cluster 'blue' has no server", id="no-server"),
            pytest.param(config(**{"certificate-authority-data": "a"}), "cannot be used: .",
                         id="no-base64"),
            pytest.param(config(**{"certificate-authority": "/no/ca.crt"}), "/no/ca.crt",
                         id="no-such-certificate"),
        ],
    )  # fmt: skip
    def test_a_file_that_says_too_little(self, write, content, words):
        path = write(content)
        with pytest.raises(PlatformError, match=words) as caught:
            find_access(path)
        assert str(caught.value).startswith(f"kubeconfig {path}")
        assert "\n" not in str(caught.value)
