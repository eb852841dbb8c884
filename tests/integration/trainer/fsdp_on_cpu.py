"""FSDP 2 on CPUs: what `configs/accelerate/fsdp2.yaml` does on GPUs, over gloo.

torch shards on a CPU as it does on a GPU; it is accelerate that turns to FSDP on accelerators only,
and our own check that refuses a launch which would then be plain data parallel.
"""

SHARDED = "share of the weights in this process: {:.1f}"
HALF = SHARDED.format(0.5)


def shard_on_cpu(*more):
    """Set up a process of a launch with `fsdp2.yaml`; then what `more` names in `runs`.

    It prints `HALF` for a model of whose weights half are its own.
    """
    from accelerate import accelerator
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    from stages.run import launch
    from tests.integration.trainer import runs

    init, prepare = AcceleratorState.__init__, accelerator.fsdp2_prepare_model

    def init_sharded(self, *args, fsdp_plugin=None, **kwargs):
        init(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    def prepare_and_tell(*args):
        weights = [*(model := prepare(*args)).parameters()]
        share = sum(w.to_local().numel() for w in weights) / sum(w.numel() for w in weights)
        runs.tell(SHARDED.format(share))
        return model

    accelerator.fsdp2_prepare_model = prepare_and_tell
    AcceleratorState.__init__ = init_sharded
    launch.check_fsdp_device = lambda is_cpu: None
    for name in more:
        getattr(runs, name)()
