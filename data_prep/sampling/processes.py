"""The processes of one launch: who this one is, and waiting for the others.

`accelerate launch` and `torchrun` set the environment; without them there is one process. No
process group is made: the processes share nothing but a key-value store, so that an engine may
bring its own group.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

# One process may have the long completions; a launcher ends the others when one dies.
PATIENCE = timedelta(days=7)


@dataclass
class Processes:
    """This process's place among `world_size`; `local_rank` counts within its host."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    _store: Any = field(default=None, repr=False)
    _meetings: int = 0

    @classmethod
    def from_environment(cls) -> "Processes":
        """Read the launcher's variables and, with several processes, meet the others."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        import torch.distributed

        found = torch.distributed.rendezvous("env://", timeout=PATIENCE)
        store, rank, world_size = next(iter(found))
        return cls(rank, world_size, int(os.environ.get("LOCAL_RANK", "0")), store)

    @property
    def is_main(self) -> bool:
        """Whether this process prints and writes the results."""
        return self.rank == 0

    def meet(self) -> None:
        """Wait until every process has come here as often as this one."""
        self._meetings += 1
        if self._store is None:
            return
        name = f"meeting-{self._meetings}"
        if self._store.add(name, 1) == self.world_size:
            self._store.set(f"{name}-all", "here")
        self._store.wait([f"{name}-all"], PATIENCE)

    def ask_main(self, make: Callable[[], Any]) -> Any:
        """What `make()` returns in the main process, for all of them; it must be JSON."""
        self._meetings += 1
        if self._store is None:
            return make()
        name = f"answer-{self._meetings}"
        if self.is_main:
            self._store.set(name, json.dumps(make()))
        self._store.wait([name], PATIENCE)
        return json.loads(self._store.get(name))

    def share(self, items: list) -> list:
        """This process's share of a list that is the same in all of them: every n-th item."""
        return items[self.rank :: self.world_size]
