# The image runs as an unprivileged user and holds what pulse itself needs: git, and certificates. Agent CLIs are the
# choice of whoever runs it; build an image FROM this one that installs them.

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/ ./cmd/...

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git \
 && rm -rf /var/lib/apt/lists/*
# Some agent CLIs end at once when their user has no entry in passwd, so a bare number is not enough.
RUN groupadd --gid 10001 pulse \
 && useradd --uid 10001 --gid 10001 --create-home --shell /usr/sbin/nologin pulse \
 && install -d -o 10001 -g 10001 -m 0700 /data
COPY --chmod=0755 packaging/healthcheck /usr/local/bin/pulse-healthcheck
COPY --from=build /out/ /usr/local/bin/
ENV HOME=/home/pulse PULSE_DATA_DIR=/data
# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /home/pulse
VOLUME ["/data"]
EXPOSE 3002
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 CMD ["pulse-healthcheck"]
ENTRYPOINT ["pulse"]
CMD ["up"]
