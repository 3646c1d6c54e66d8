"""Authentication and authorization reviews: everything is allowed, a few tokens are known."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from app.sim.errors import bad_request
from app.sim.resources.kinds import Kind
from app.sim.store import Object

ADMIN_TOKEN: Final = "embedded-cluster-admin"  # noqa: S105 - guards nothing, every request is allowed
ADMIN: Final = "kubernetes-admin"
_GROUPS: Final = ("system:masters", "system:authenticated")
_AUDIENCE: Final = "https://kubernetes.default.svc"


class Reviewer:
    """Answers reviews. ``tokens`` maps bearer tokens to user names."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = dict(tokens)

    def review(self, kind: Kind, body: Any, user_token: str) -> Object:
        """Returns the review with its status filled in."""
        if not isinstance(body, dict):
            raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
        answer = _ANSWERS[kind.kind](self, body.get("spec") or {}, user_token)
        type_ = {"kind": kind.kind, "apiVersion": kind.group_version, "metadata": {}}
        spec = {"spec": body["spec"]} if "spec" in body else {}
        return type_ | spec | {"status": answer}

    def _user(self, token: str) -> Object:
        return {"username": self._tokens.get(token, ADMIN), "groups": list(_GROUPS)}

    def token(self, spec: Object, _user_token: str) -> Object:
        token = spec.get("token", "")
        if token not in self._tokens:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": self._user(token), "audiences": [_AUDIENCE]}

    def access(self, _spec: Object, _user_token: str) -> Object:
        return {"allowed": True, "reason": "the embedded cluster allows everything"}

    def self_subject(self, _spec: Object, user_token: str) -> Object:
        return {"userInfo": self._user(user_token)}

    def rules(self, _spec: Object, _user_token: str) -> Object:
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        return {"resourceRules": [everything], "nonResourceRules": [paths], "incomplete": False}


_ANSWERS: Final[Mapping[str, Callable[[Reviewer, Object, str], Object]]] = {
    "TokenReview": Reviewer.token,
    "SelfSubjectReview": Reviewer.self_subject,
    "SubjectAccessReview": Reviewer.access,
    "LocalSubjectAccessReview": Reviewer.access,
    "SelfSubjectAccessReview": Reviewer.access,
    "SelfSubjectRulesReview": Reviewer.rules,
}
