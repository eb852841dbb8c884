# syntax=docker/dockerfile:1
# The project with vLLM on one GPU host, or as the environment of each host under Slurm.
#
#   docker build -t sft-grpo-math .
#   docker run --gpus all --shm-size 16g -v "$PWD/runs:/project/runs" -v "$HOME/.cache/huggingface:/cache" \
#     sft-grpo-math report RECIPE=grpo7b
#   apptainer build sft-grpo-math.sif docker-daemon://sft-grpo-math:latest
#   apptainer run --nv --bind runs:/project/runs sft-grpo-math.sif report RECIPE=grpo7b
#
# Written without Docker at hand: docs/scale.md says what of it has been run.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# A compiler is for DeepSpeed, Triton and vLLM, which compile as they run; git for the manifests.
# hadolint ignore=DL3008
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt,sharing=locked \
    apt-get update && apt-get install --yes --no-install-recommends \
    python3.12 python3.12-venv python3.12-dev build-essential make git ca-certificates
RUN useradd --create-home --uid 1001 --shell /bin/bash user \
    && mkdir /project /cache && chown 1001:1001 /project /cache
USER 1001:1001
WORKDIR /project
# The packages first: a change of the code installs none of them again.
COPY --chown=1001:1001 locks/gpu.txt locks/gpu.txt
RUN --mount=type=cache,target=/home/user/.cache/pip,uid=1001 \
    python3.12 -m venv .venv \
    && .venv/bin/python -m pip install --no-deps --require-hashes -r locks/gpu.txt
COPY --chown=1001:1001 . .
RUN python3.12 -IS pipeline/venv.py .venv install gpu
ENV PATH=/project/.venv/bin:$PATH HF_HOME=/cache
ENTRYPOINT ["sft-grpo-math"]
CMD ["--help"]
