# One image for every role; the role is the argument: `docker run noetl services.worker`.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
# Which extras of pyproject.toml are installed: by default every role, the CLI, traces and the tool `container`. For other
# tools and stores: --build-arg EXTRAS=ingest,meta,compute,compactor,worker,cli,otel,k8s,duckdb,snowflake,gcs,gcp,vault
ARG EXTRAS=ingest,meta,compute,compactor,worker,cli,otel,k8s
WORKDIR /src
RUN python3 -m venv /opt/noetl
# Every wheel is checked against the lock's hashes; only those that the roles need are installed below.
COPY requirements.lock ./
RUN /opt/noetl/bin/pip wheel --no-cache-dir --no-deps --require-hashes --wheel-dir /wheels -r requirements.lock
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY libs libs
COPY services services
RUN /opt/noetl/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && /opt/noetl/bin/pip install --no-cache-dir --no-index --find-links /wheels \
        "noetl[${EXTRAS}]"

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="noetl" \
      org.opencontainers.image.description="A Postgres-first, event-sourced, sharded runtime for NoETL playbooks" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/noetl /opt/noetl
# The one directory that is written to, beside /tmp: results on the disk tier. Mount a volume shared by worker, ingest and compactor.
RUN mkdir -p /var/lib/noetl && chown 10001:10001 /var/lib/noetl
ENV PATH=/opt/noetl/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/noetl
USER 10001:10001
EXPOSE 8082
ENTRYPOINT ["python", "-m"]
CMD ["services.ingest"]
