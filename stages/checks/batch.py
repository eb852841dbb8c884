"""Batch numbers: every process must have whole groups in a generation."""

import math

from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.arguments import steps_per_generation


def check_batch(settings: Settings, num_processes: int) -> None:
    """Refuse batch numbers that do not give every process whole groups in a generation."""
    group, per_device = settings.num_generations, settings.per_device_train_batch_size
    whole, rows = settings.generation_batch_size, per_device * num_processes
    if group is None:
        raise UserError("num_generations: missing; set the number of completions of one problem")
    if settings.steps_per_generation and whole:
        raise UserError("generation_batch_size: set it or steps_per_generation, not both")
    if whole and whole % rows:
        raise UserError(
            f"generation_batch_size: {whole} is not a multiple of per_device_train_batch_size x "
            f"processes = {rows}; use a multiple of that"
        )
    steps = steps_per_generation(settings, num_processes)
    local = per_device * steps
    if local % group == 0:
        return
    if whole:
        key, now, unit = "generation_batch_size", whole, num_processes * math.lcm(per_device, group)
    else:
        key, now, unit = "per_device_train_batch_size", per_device, group // math.gcd(group, steps)
    remedy = f"use {key} {nearest_multiples(now, unit)}"
    groups = [n for n in range(2, local + 1) if local % n == 0]
    if groups:
        remedy += f", or num_generations {min(groups, key=lambda n: abs(n - group))}"
    raise UserError(
        f"num_generations: {group} does not divide the {local} completions of one process "
        f"(per_device_train_batch_size {per_device} x {steps} steps per generation); {remedy}"
    )


def nearest_multiples(number: int, unit: int) -> str:
    """The multiples of the unit around a number that is none: "6 or 9" of 7 and 3."""
    below = number // unit * unit
    return " or ".join(str(n) for n in (below, below + unit) if n)
