"""The callbacks of a job: called in turn, kept in cuts, and what they decide.

Kept are their plain attributes, as JSON values; what JSON cannot hold is a dict of one tagged key.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from types import MemberDescriptorType
from typing import Any, Final

import numpy as np

from elastic.callbacks import Callback, StopTraining
from elastic.errors import ModelDefError
from elastic.frameworks.user_code import user_code
from elastic.master.parameters.strategy import AnyStrategy
from elastic.policy.evaluation import BestRule, Evaluation, is_new_best, remembered
from elastic.policy.tasks.epochs import Ending
from elastic.spec.model_def import stuck_in

_TUPLE: Final = "$tuple"
_ITEMS: Final = "$items"


def plain_attributes(thing: Any) -> dict[str, Any]:
    """Copies of the attributes that are plain values, by name, as JSON."""
    packed = {}
    for name, value in _attributes(thing):
        # What holds itself has no end.
        with suppress(TypeError, RecursionError):
            packed[name] = _pack(dict(value) if isinstance(value, dict) else value)
    return packed


def set_attributes(thing: Any, packed: Mapping[str, Any]) -> None:
    """Undo `plain_attributes`."""
    present = dict(_attributes(thing))
    for name, value in packed.items():
        setattr(thing, name, _in_form_of(present.get(name), _unpack(value)))


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        # Classes written in C have members of their own, which nobody sets.
        for name, slot in vars(kind).items() if "__slots__" in vars(kind) else ():
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):  # nothing has been assigned to it
                    yield name, slot.__get__(thing)


def _pack(value: Any) -> Any:
    """A copy as JSON.

    Raises:
        TypeError: It is something else, or holds it.
    """
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
    # Of other classes a copy would lack what makes them others.
    if type(value) is list:
        return [_pack(each) for each in value]
    if type(value) is tuple:
        return {_TUPLE: [_pack(each) for each in value]}
    if type(value) is not dict:
        return _number(value)
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: _pack(each) for key, each in value.items()}
    return {_ITEMS: [[_pack(key), _pack(each)] for key, each in value.items()]}


def _unpack(value: Any) -> Any:
    match value:
        case list():
            return [_unpack(each) for each in value]
        case {"$tuple": values}:
            return tuple(_unpack(each) for each in values)
        case {"$items": items}:
            return {_unpack(key): _unpack(each) for key, each in items}
        case dict():
            return {key: _unpack(each) for key, each in value.items()}
    return value


def _number(value: Any) -> bool | int | float:
    """What a NumPy value, tensor or variable without dimensions holds.

    Raises:
        TypeError: It is none of these, or holds something else.
    """
    if not hasattr(value, "dtype") or getattr(value, "shape", None) != ():
        raise TypeError
    try:
        # TensorFlow's own conversion to an array knows no bfloat16.
        if not hasattr(value, "item"):
            value = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        number = value.item()
        number = float(number) if hasattr(number, "dtype") else number
    except Exception as error:
        # Each framework has its own way to refuse, one that is symbolic or uninitialized.
        raise TypeError from error
    if not isinstance(number, bool | int | float):
        raise TypeError
    return number


def _in_form_of(present: Any, value: Any) -> Any:
    """A value for the place of another, whose class a snapshot does not tell."""
    if hasattr(present, "assign") and isinstance(value, bool | int | float):
        # A variable: the optimizer's, perhaps, or called by its methods.
        present.assign(value)
        return present
    if isinstance(present, dict) and type(present) is not dict and isinstance(value, dict):
        # A defaultdict, say, that the hooks count on.
        present.clear()
        present.update(value)
        return present
    with suppress(ValueError):
        return type(present)(value) if isinstance(present, Enum) else value
    return value


class _Member:
    """One callback, and what it was before training changed it."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        # A wrapper of another library's callback is known by that one.
        self._inner = getattr(callback, "wrapped", callback)
        self.name = type(self._inner).__name__
        # Before any hook: what `on_train_begin` sets may be of this life of the master alone.
        self.settings = plain_attributes(self._inner)
        self._begun = self.settings

    def settle(self) -> None:
        """Take its values for those that training begins with."""
        self._begun = plain_attributes(self._inner)

    def snapshot(self) -> dict[str, Any]:
        now = plain_attributes(self._inner)
        changed = {
            key: value
            for key, value in now.items()
            if key not in self._begun or not _same(value, self._begun[key])
        }
        return {"name": self.name, "settings": self.settings, "changed": changed}

    def measures_as(self, settings: Mapping[str, Any]) -> bool:
        """Whether it watches what a callback with these settings did: else its best is not this."""
        return all(
            _same(settings.get(key), self.settings.get(key)) for key in ("monitor", "mode", "goal")
        )

    def restore(self, changed: Mapping[str, Any]) -> None:
        set_attributes(self._inner, changed)


class CallbackRunner:
    """Calls the callbacks, and remembers evaluations with the best of them.

    Hooks run on a thread while the caller holds the parameters' lock.

    Attributes:
        history: The newest evaluations.
        best: The evaluation of the version that is kept as the best.
        ending: Why a callback has ended training, if one has.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        parameters: AnyStrategy,
        patience_s: float,
        tell: Callable[[str, str], None],
    ) -> None:
        """Store what is called, on whose parameters.

        Args:
            callbacks: In their order.
            parameters: What a callback may look at.
            patience_s: What a hook may take before it is told of; it is waited for all the same.
            tell: Takes an event, as its kind and its message.
        """
        self._members = [_Member(callback) for callback in callbacks]
        self._parameters = parameters
        self._patience_s = patience_s
        self._tell = tell
        self._called: tuple[str, int] | None = None
        self.history: tuple[Evaluation, ...] = ()
        self.best: Evaluation | None = None
        self.ending: Ending | None = None

    @property
    def is_active(self) -> bool:
        """Whether there are callbacks at all."""
        return bool(self._members)

    @property
    def watches_metrics(self) -> bool:
        """Whether a callback needs evaluations."""
        return any(self._watched())

    @property
    def restores_best(self) -> bool:
        """Whether the final model is the best version."""
        return any(getattr(each.callback, "restores_best", False) for each in self._members)

    @property
    def best_rule(self) -> BestRule | None:
        """By what the best version is chosen; None where no callback wants one."""
        return next(self._best_rules(), None)

    def check(self, has_data: bool, metrics: Sequence[str]) -> None:
        """Check before training that everything that is watched will come.

        Args:
            has_data: Whether the job has evaluation records.
            metrics: Names of what an evaluation gives; empty where that is not known.

        Raises:
            ModelDefError: A callback would wait for ever, or two want different best versions.
        """
        for name, monitor in self._watched():
            if not has_data:
                raise ModelDefError(
                    f"the callback {name} watches val_{monitor}, and nothing is evaluated: "
                    "name the evaluation records with --evaluation_data_dir"
                )
            if metrics and monitor not in metrics:
                known = ", ".join(f"val_{each}" for each in metrics)
                raise ModelDefError(
                    f"the callback {name} watches val_{monitor}, which no evaluation gives: "
                    f"there are {known}"
                )
        rules = {(rule.monitor, rule.goal) for rule in self._best_rules()}
        if len(rules) > 1:
            names = " and ".join(sorted(f"val_{monitor} ({goal})" for monitor, goal in rules))
            raise ModelDefError(
                f"the callbacks choose the best version by {names}: let them watch one metric"
            )

    def would_be_best(self, evaluation: Evaluation) -> bool:
        """Whether a version is to be kept as the best so far."""
        return self.ending is None and is_new_best(self.best_rule, evaluation, self.best)

    # -- hooks ---------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Begin a life of the master."""
        await self._call("on_train_begin")
        for member in self._members:
            member.settle()

    async def epoch_begins(self, epoch: int) -> None:
        """An epoch's first update is about to come."""
        await self._call("on_epoch_begin", epoch)

    async def evaluated(
        self, evaluation: Evaluation, is_best: bool, trained: Mapping[str, float] | None
    ) -> Ending | None:
        """A version has been evaluated.

        Args:
            evaluation: What came of it.
            is_best: Whether it is kept as the best.
            trained: Loss and metrics of its epoch's training, if that ended with this version.

        Returns:
            What ends training, if a callback wants that.
        """
        self.history = remembered(self.history, evaluation)
        if is_best:
            self.best = evaluation
        if self.ending is not None:
            # It has been decided; how late this version came is chance.
            return None
        version, metrics = evaluation.version, evaluation.metrics
        stop = await self._call("on_evaluation_end", version, dict(metrics), shown=version)
        if trained is not None:
            logs = {**trained, **{f"val_{name}": v for name, v in metrics.items()}}
            answer = await self._call("on_epoch_end", evaluation.epoch, logs, shown=version)
            stop = stop or answer
        return self._end(stop)

    async def epoch_ended(self, epoch: int, trained: Mapping[str, float]) -> Ending | None:
        """An epoch has ended whose last version is not evaluated."""
        if self.ending is not None:
            return None
        return self._end(await self._call("on_epoch_end", epoch, dict(trained)))

    async def end(self) -> None:
        """Training is over, and the model about to be exported."""
        await self._call("on_train_end")

    # -- cuts ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """What a restarted master needs to decide the same, as JSON values."""
        return {
            "history": [_to_list(each) for each in self.history],
            "best": None if self.best is None else _to_list(self.best),
            "ending": None if self.ending is None else [self.ending.reason, self.ending.message],
            "callbacks": [member.snapshot() for member in self._members],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot.

        Callbacks that are no longer there, or watch something else, are forgotten, and so is the
        end that they brought where their author has changed them.
        """
        self.history = tuple(_from_list(each) for each in snapshot.get("history", ()))
        best, rule = snapshot.get("best"), self.best_rule
        if best is not None and rule is not None and rule.monitor in best[2]:
            self.best = _from_list(best)
        stored = snapshot.get("callbacks", [])
        mine = [(member.name, member.settings) for member in self._members]
        for member, state in zip(self._members, stored, strict=False):
            if member.name == state["name"] and member.measures_as(state["settings"]):
                member.restore(state["changed"])
        ending = snapshot.get("ending")
        if ending is not None and _same(
            mine, [(each["name"], each["settings"]) for each in stored]
        ):
            self.ending = Ending(*ending)

    # -- inside --------------------------------------------------------------------------------

    def _watched(self) -> Iterator[tuple[str, str]]:
        for member in self._members:
            monitor = getattr(member.callback, "monitor", None)
            if monitor is not None:
                yield member.name, str(monitor).removeprefix("val_")
            for name in getattr(member.callback, "also_watched", ()):
                yield member.name, name

    def _best_rules(self) -> Iterator[BestRule]:
        for member in self._members:
            callback: Any = member.callback
            if getattr(callback, "keeps_best", False):
                yield BestRule(callback.monitor, callback.goal, getattr(callback, "from_epoch", 0))

    def _end(self, stop: tuple[str, StopTraining] | None) -> Ending | None:
        if stop is not None:
            name, answer = stop
            self.ending = Ending(
                name,
                f"{name} ended training after {self._parameters.version} updates: {answer.why}",
            )
        return self.ending

    async def _call(
        self, hook: str, *arguments: Any, shown: int | None = None
    ) -> tuple[str, StopTraining] | None:
        """Call one hook of all callbacks; gives the first that ends training, by name."""
        if not self._members:
            return None
        if self._reads_model:
            await self._parameters.whole()
        calling = asyncio.ensure_future(
            asyncio.to_thread(partial(self._call_all, hook, arguments, shown))
        )
        done, _ = await asyncio.wait([calling], timeout=self._patience_s)
        if not done and self._called is not None:
            # A hook may have a reason to take long, so nobody ends it; but nothing is trained.
            what, thread_id = self._called
            frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - documented
            stuck = None if frame is None else stuck_in(frame)
            at = f" ({stuck})" if stuck else ""
            self._tell(
                "CallbackSlow",
                f"{what} has taken more than {self._patience_s:g} s{at}, and training waits for it",
            )
        return await calling

    def _call_all(
        self, hook: str, arguments: Sequence[Any], shown: int | None
    ) -> tuple[str, StopTraining] | None:
        stop = None
        with self._showing(shown):
            for member in self._members:
                function = getattr(member.callback, hook, None)
                if function is None:
                    continue
                what = f"{hook} of the callback {member.name}"
                self._called = what, threading.get_ident()
                with user_code(what):
                    answer = function(*arguments)
                if isinstance(answer, StopTraining):
                    stop = stop or (member.name, answer)
                elif answer is not None:
                    raise ModelDefError(
                        f"{what} returned a "
                        f"{type(answer).__name__}: return None, or StopTraining to end training"
                    )
        return stop

    @property
    def _reads_model(self) -> bool:
        return any(getattr(each.callback, "reads_model", False) for each in self._members)

    @contextmanager
    def _showing(self, version: int | None) -> Iterator[None]:
        """Have the model hold a version that is kept, where a callback may look at it.

        What callbacks write to it is put back: only updates change what is trained.
        """
        if not self._reads_model:
            yield
            return
        model = self._parameters.model
        newest = model.parameters(), model.state()
        kept = None if version is None else self._parameters.kept(version)
        if kept is not None:
            model.load(*kept)
        try:
            yield
        finally:
            model.load(*newest)


def _to_list(evaluation: Evaluation) -> list[Any]:
    return [evaluation.version, evaluation.epoch, dict(evaluation.metrics)]


def _from_list(values: Sequence[Any]) -> Evaluation:
    version, epoch, metrics = values
    return Evaluation(version, epoch, metrics)


def _same(one: Any, other: Any) -> bool:
    # As text, in which NaN equals itself.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
