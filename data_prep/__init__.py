"""Data, grading and sampling: what `stages` and `eval` stand on."""

import signal
import sys

IS_OURS = True  # a user's module of this name has no such mark

_main = getattr(sys.modules["__main__"], "__spec__", None)
_root = _main.name.partition(".")[0] if _main else ""
if sys.argv[:1] == ["-m"] or _root in ("data_prep", "stages", "eval"):
    # Until `run_cli` has begun: Ctrl-C in the midst of imports has nothing to tell.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
