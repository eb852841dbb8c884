"""What autograd keeps of a forward pass of Qwen2 or Llama (transformers 5.17), per token.

Derived from the modules' source, one term for each tensor that a backward formula needs. Views
share storage and count once; a mixed-precision product keeps its own bf16 copy of its input.
H hidden, I inner, A query width, K key width.
"""

from stages.preflight.memory_model import Model, Step

ATTENTION = ("q_proj", "k_proj", "v_proj")


def norm_bytes(model: Model, step: Step) -> int:
    """Bytes per token that one RMSNorm keeps, without its output.

    Its input in fp32 (for the square and for the product) and, for the gradient of its weight, the
    normalised input in the weights' precision.
    """
    normalised = 0 if step.lora_rank else step.weight * model.hidden
    return 4 * model.hidden + 4 + normalised


def layer_bytes(model: Model, step: Step) -> int:
    """Bytes per token that one decoder layer keeps, without the attention mask."""
    c = step.compute
    # Attention keeps q, k, v, its output and a log-sum for each head. With a mask sdpa repeats
    # keys and values to the width of the query.
    key = model.query if step.is_masked else model.key
    attention = c * (2 * model.query + 2 * key) + 4 * model.heads
    if model.head_norms:  # of q and k (Qwen3): input in fp32, normalised input, 1 number a head
        width = model.query + model.key
        normalised = 0 if step.lora_rank else c * width
        attention += 4 * width + normalised + 4 * (2 * width // model.head_norms)
    # SwiGLU keeps gate, silu(gate), up; their product is the input of down_proj.
    mlp = 3 * c * model.inner
    return 2 * norm_bytes(model, step) + attention + mlp + _linear_inputs(model, step)


def _linear_inputs(model: Model, step: Step) -> int:
    """Bytes per token of the inputs that the matrices keep for their weights' gradients."""
    h, i, c = model.hidden, model.inner, step.compute
    widths = {name: rows for name, (rows, _) in model.linears().items()}
    if step.lora_rank is None:
        # q, k, v share one input, gate and up another; autocast makes each its own copy. The input
        # of o_proj is attention's output, kept already.
        copies = (3 + 2) if step.casts else 2
        return c * (copies * h + i)
    # Only LoRA's A keeps its input: dropped out, a copy for each module, with its mask; B
    # keeps the rank's numbers. Its weights are fp32 (peft), so without autocast so is the copy.
    number = 2 if step.is_autocast else 4
    mask = 1 if step.is_cuda else 4  # on a CPU it is made of numbers
    kept = sum(widths[name] * (number + mask) for name in step.lora_modules)
    if not step.has_dropout:
        if step.weight == 4 and not step.is_autocast:  # no copy is made: shared as above
            shared = [h * bool({*ATTENTION} & {*step.lora_modules})]
            shared += [h * bool({"gate_proj", "up_proj"} & {*step.lora_modules})]
            shared += [i * ("down_proj" in step.lora_modules)]
            kept = 4 * sum(shared)
        else:
            kept -= mask * sum(widths[name] for name in step.lora_modules)
    return kept + number * step.lora_rank * len(step.lora_modules)


def mask_bytes(step: Step) -> int:
    """Bytes of one layer's attention mask: sdpa turns the bool mask into numbers in each layer."""
    return step.compute * step.rows * step.length**2 if step.is_masked else 0


def final_bytes(model: Model, step: Step) -> int:
    """Bytes per token after the last layer: the last norm and the input of the LM head."""
    return norm_bytes(model, step) + step.weight * model.hidden


def residual_bytes(model: Model, step: Step) -> int:
    """Bytes per token of a layer's input, all that a checkpointed layer keeps."""
    return step.weight * model.hidden
