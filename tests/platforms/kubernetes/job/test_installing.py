"""Bringing a cluster to what jobs need: who has rights keeps them, also if two do so at once."""

import pytest
from support.fake_api import Answer, FakeApi, refusal

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.job import installing
from elastic.platforms.kubernetes.job.installing import apply


class Store:
    """One object with versions, as an API server keeps it; `rival` changes it in between."""

    def __init__(self, stored=None, rival=None):
        self.stored = stored
        self.version = 1
        self.rival = rival

    def __call__(self, seen):
        answer = self._answer(seen)
        if seen.method == "GET" and self.rival is not None:
            self.stored, self.rival = self.rival, None
            self.version += 1
        return answer

    def _answer(self, seen):
        if seen.method == "POST":
            if self.stored is not None:
                return refusal(409, "exists", "AlreadyExists")
            self.stored = seen.body
        elif self.stored is None:
            return refusal(404, "none", "NotFound")
        elif seen.method == "DELETE":
            self.stored = None
            return Answer()
        elif seen.method == "PATCH":
            if seen.body["metadata"]["resourceVersion"] != str(self.version):
                return refusal(409, "has been modified", "Conflict")
            self.stored = {**self.stored, **seen.body}
            self.version += 1
        metadata = {**self.stored["metadata"], "resourceVersion": str(self.version)}
        return Answer(body={**self.stored, "metadata": metadata})


def binding(*users):
    return installing.submitter_access("team", users)[1]


def role():
    return installing.master_access("team", "m")[1]


def users(store):
    return [subject["name"] for subject in store.stored["subjects"]]


def install(store, *names):
    with FakeApi(answer=store) as api:
        (line,) = apply(api.cluster(), [binding(*names)])
    return line.removeprefix("RoleBinding elastic-submitter: ")


def test_a_further_submitter_takes_no_rights_from_the_others():
    store = Store()
    assert install(store, "ann") == "created"
    assert install(store, "bob", "eve", "bob") == "changed: added User bob, User eve"
    assert install(store, "ann") == "unchanged"
    assert users(store) == ["ann", "bob", "eve"]


@pytest.mark.parametrize("before", [None, binding("ann")], ids=["both-create", "both-add"])
def test_of_two_who_install_at_once_none_is_lost(before):
    store = Store(before, rival=binding("ann", "eve"))
    assert install(store, "bob") == "changed: added User bob"
    assert users(store) == ["ann", "eve", "bob"]


def test_a_role_keeps_the_rules_that_others_have_added():
    added = {"apiGroups": ["x.io"], "resources": ["policies"], "verbs": ["use"]}
    earlier = [{**rule, "verbs": ["get"]} for rule in role()["rules"][:1]]
    there = {**role(), "rules": [*earlier, added, *role()["rules"][1:]]}
    store = Store(there)
    with FakeApi(answer=store) as api:
        lines = [line for _ in range(2) for line in apply(api.cluster(), [role()])]
    assert lines == ["Role m: changed", "Role m: unchanged"]
    assert store.stored["rules"] == [*there["rules"], role()["rules"][0]]


def test_a_binding_to_another_role_brings_nobody_along():
    other = {**binding("eve"), "roleRef": {"kind": "Role", "name": "other"}}
    store = Store(other)
    assert install(store, "bob") == "changed"
    assert users(store) == ["bob"]


def test_a_change_that_never_gets_through_is_told():
    with FakeApi(answer=Restless()) as api, pytest.raises(PlatformError, match="modified"):
        list(apply(api.cluster(), [binding("bob")]))


class Restless(Store):
    """One whose object changes after every look."""

    def __init__(self):
        super().__init__(binding("ann"))

    def __call__(self, seen):
        answer = super().__call__(seen)
        self.version += seen.method == "GET"
        return answer


def test_a_namespace_that_is_not_there_is_told_with_what_makes_it():
    def answer(seen):
        if seen.method == "GET":
            return refusal(404, 'serviceaccounts "m" not found', "NotFound", kind="serviceaccounts")
        return refusal(404, 'namespaces "team" not found', "NotFound", kind="namespaces")

    words = r"no namespace 'team' in http://.*or add --create_namespace"
    with FakeApi(answer=answer) as api, pytest.raises(PlatformError, match=words):
        list(apply(api.cluster(), installing.master_access("team", "m")))
