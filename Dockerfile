# Hermes' gateway in one container: one user without rights, one volume, one process.
# tests/docker/steps.sh runs these steps without an engine; keep to the instructions it knows.

FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml requirements-dev.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/hermes
# The pins are constraints here: of them only what Hermes needs at run time is installed.
RUN /opt/hermes/bin/pip install --no-cache-dir --disable-pip-version-check -c requirements-dev.txt setuptools
RUN /opt/hermes/bin/pip install --no-cache-dir --disable-pip-version-check --no-build-isolation -c requirements-dev.txt ".[mcp,postgres,sandbox,telegram,tui,web]"
RUN /opt/hermes/bin/pip uninstall --yes --quiet setuptools

FROM python:3.11-slim
COPY --from=build /opt/hermes /opt/hermes
# A new named volume takes over the folder's owner and mode.
RUN useradd --uid 10001 --create-home --shell /bin/bash hermes && install -d -m 0700 -o hermes -g hermes /data
ENV PATH=/opt/hermes/bin:$PATH
ENV HERMES_HOME=/data
ENV PYTHONUNBUFFERED=1
ENV MALLOC_ARENA_MAX=2
USER hermes
WORKDIR /data
VOLUME /data
EXPOSE 8642
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=20s --retries=3 CMD ["hermes", "gateway", "status"]
CMD ["hermes", "gateway", "run"]
