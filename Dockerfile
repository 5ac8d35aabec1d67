# An image with the installed program, built from Debian's packages and this tree alone:
#
#   docker build -t lockstep .
#   docker run --rm -v "$PWD:/work" lockstep train run.yaml
#   docker run --rm -v "$PWD:/work" --entrypoint mpirun lockstep -n 2 \
#       lockstep train run.yaml parallel.dp=2

FROM debian:12 AS build
WORKDIR /source/lockstep
ENV DEBIAN_FRONTEND=noninteractive DEB_BUILD_OPTIONS=nocheck DEB_BUILD_PROFILES=nocheck
COPY debian debian
RUN apt-get update && apt-get install -y --no-install-recommends dpkg-dev git \
    && apt-get build-dep -y --no-install-recommends ./
COPY . .
RUN dpkg-buildpackage -us -uc -b && mkdir /packages && mv ../lockstep_*.deb ../liblockstep0_*.deb /packages

FROM debian:12
RUN --mount=type=bind,from=build,source=/packages,target=/packages \
    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    /packages/*.deb openmpi-bin openssh-client && rm -rf /var/lib/apt/lists/*
# The root of a container is nobody on the host: mpirun need not refuse it.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
WORKDIR /work
ENTRYPOINT ["lockstep"]
CMD ["help"]
