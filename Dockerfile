# The image has nothing but the program. Its builder puts the program into a folder that is named
# after the platform: see .goreleaser.yaml.
#
#     docker run --name sandbox -p 6443:6443 ghcr.io/kinproc/kinproc
#     docker cp sandbox:/home/kinproc/.kinproc/ephemeral/kinproc/kubeconfig .
FROM scratch
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/kinproc /kinproc
USER 65532:65532
# A directory of the user's own, for data and temporary files.
WORKDIR /home/kinproc
ENV HOME=/home/kinproc TMPDIR=/home/kinproc
ENTRYPOINT ["/kinproc"]
CMD ["start", "--ephemeral", "--bind-address=0.0.0.0"]
