# syntax=docker/dockerfile:1
#
# The image of every Octavo program: `octavo`, and `octavo-agent` for the nodes.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --tag REGISTRY/octavo:0.1.0 \
#     --build-arg REVISION="$(git rev-parse HEAD)" .
#
# Each platform is built on itself (a native builder of that platform, or emulation): no cross compiler has to agree
# with the C library of the final image. A release pins both base images by digest:
#
#   --build-arg BUILDER_DIGEST=sha256:... --build-arg BASE_DIGEST=sha256:...

# The C library of builder and base must be one version: both are Debian 12. It is glibc and not musl, because the agent
# loads the driver's libnvidia-ml.so.1, which is linked against glibc.
ARG BUILDER=docker.io/library/rust:1.95.0-bookworm
ARG BUILDER_DIGEST=""
ARG BASE=gcr.io/distroless/cc-debian12:latest
ARG BASE_DIGEST=""

FROM ${BUILDER}${BUILDER_DIGEST:+@${BUILDER_DIGEST}} AS builder
ARG TARGETARCH
ARG REVISION=""
WORKDIR /src
# The image's own toolchain, which is the one of rust-toolchain.toml: nothing is fetched but crates.
ENV RUSTUP_TOOLCHAIN=1.95.0 \
    CARGO_TERM_COLOR=never
COPY . .
# Crates and objects stay in the builder's cache from one build to the next, for each platform by itself.
RUN --mount=type=cache,id=octavo-registry-${TARGETARCH},target=/usr/local/cargo/registry \
    --mount=type=cache,id=octavo-target-${TARGETARCH},target=/src/target \
    if [ -n "$REVISION" ]; then export OCTAVO_COMMIT="$REVISION"; fi && \
    cargo build --locked --profile dist --package octavo && \
    install -D -m 0755 --target-directory /out target/dist/octavo target/dist/octavo-agent

FROM ${BASE}${BASE_DIGEST:+@${BASE_DIGEST}}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="octavo" \
      org.opencontainers.image.description="The GPUs of a Kubernetes cluster as one pool" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /out/octavo /usr/local/bin/octavo
COPY --from=builder /out/octavo-agent /usr/local/bin/octavo-agent
COPY LICENSE /usr/share/doc/octavo/LICENSE
# Root: the agent makes sockets, checkpoints, mounts and CDI specs in folders of the host that are root's. Programs that
# write no host folder are run as another user by their pod. The lab packs the files that this stage copies.
USER 0:0
ENTRYPOINT ["octavo"]
