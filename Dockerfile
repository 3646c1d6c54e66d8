# The scheduler's images: locked dependencies, an environment with nothing in it that never runs.
#   docker build --tag aiokube-scheduler:0.2.0 .                              as nobody, the program aiokube-scheduler
#   docker build --tag kube-scheduler:v1.36.2 --target kube-scheduler .       as root, the program kube-scheduler
# The second one is for manifests of kube-scheduler, whose image has no user: kubeadm's kubeconfig belongs to root.

FROM python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285 AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# For strip (image.py). The versions of Debian's packages go with the base.
RUN ["apt-get", "update"]
# hadolint ignore=DL3008,DL3059
RUN ["apt-get", "install", "--yes", "--no-install-recommends", "binutils"]
# Steps of their own: layers of this stage cost nothing, it is thrown away.
# hadolint ignore=DL3059
RUN ["python", "-m", "venv", "--without-pip", "/opt/aiokube-scheduler"]
COPY requirements.lock requirements-build.lock ./
RUN ["pip", "--python", "/opt/aiokube-scheduler/bin/python", "install", "--require-hashes", "--only-binary=:all:", "--requirement", "requirements.lock"]
# hadolint ignore=DL3059
RUN ["pip", "install", "--require-hashes", "--only-binary=:all:", "--requirement", "requirements-build.lock"]
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY extenders extenders
COPY app app
RUN ["pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "/wheels", "."]
# hadolint ignore=DL3013,DL3059
RUN ["pip", "--python", "/opt/aiokube-scheduler/bin/python", "install", "--no-deps", "--no-index", "--find-links", "/wheels", "aiokube-scheduler"]
COPY image.py ./
RUN ["python", "image.py", "/opt/aiokube-scheduler", "/library"]

FROM python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285 AS kube-scheduler
LABEL org.opencontainers.image.title="aiokube-scheduler" \
      org.opencontainers.image.description="aiokube-scheduler in the place of kube-scheduler" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/aiokube-scheduler /opt/aiokube-scheduler
COPY --from=build /library /
COPY --from=build /opt/aiokube-scheduler/bin/kube-scheduler /usr/local/bin/kube-scheduler
ENV PATH="/opt/aiokube-scheduler/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /tmp
EXPOSE 10259
ENTRYPOINT ["kube-scheduler"]

FROM python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
LABEL org.opencontainers.image.title="aiokube-scheduler" \
      org.opencontainers.image.description="A Kubernetes scheduler: kube-scheduler's decisions, faster, and at its best with extenders" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/aiokube-scheduler /opt/aiokube-scheduler
COPY --from=build /library /
COPY --from=build /opt/aiokube-scheduler/bin/kube-scheduler /usr/local/bin/kube-scheduler
ENV PATH="/opt/aiokube-scheduler/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /tmp
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["aiokube-scheduler"]
