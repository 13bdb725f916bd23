# The gate in an image: docker build -t kpipe . && docker run --rm -v "$PWD:/data" kpipe validate model.keras
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements/ requirements/
RUN python -m venv /opt/bootstrap \
 && /opt/bootstrap/bin/pip install --quiet --no-cache-dir --require-hashes -r requirements/bootstrap.lock \
 && python -m venv --without-pip /opt/kpipe \
 && /opt/bootstrap/bin/uv pip sync --quiet --no-cache --require-hashes --compile-bytecode --python /opt/kpipe/bin/python requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY pipeline/ pipeline/
COPY stages/ stages/
RUN /opt/bootstrap/bin/python -m hatchling build -t wheel \
 && /opt/bootstrap/bin/uv pip install --quiet --no-cache --no-deps --compile-bytecode --python /opt/kpipe/bin/python dist/*.whl

FROM python:3.11-slim
RUN useradd --no-create-home --uid 10001 kpipe
COPY --from=build /opt/kpipe /opt/kpipe
# The root may be read-only: what is written goes to the mounted folder and to /tmp.
ENV PATH=/opt/kpipe/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
USER kpipe
WORKDIR /data
ENTRYPOINT ["kpipe"]
CMD ["--help"]
