# The controller of `elastic install --controller`: elastic itself, and no framework; see build_all.sh.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG INDEX=
ARG PIP_NO_CACHE_DIR=1
ARG PIP_ROOT_USER_ACTION=ignore
# What changes seldom comes first.
COPY pyproject.toml images/requirements_of.py /tmp/elastic/
RUN python /tmp/elastic/requirements_of.py > /tmp/elastic/requirements.txt \
    && python -m pip install ${INDEX:+--extra-index-url "$INDEX"} -r /tmp/elastic/requirements.txt
COPY pyproject.toml README.md LICENSE /tmp/elastic/
COPY elastic/ /tmp/elastic/elastic/
COPY model_zoo/ /tmp/elastic/model_zoo/
RUN python -m pip install ${INDEX:+--extra-index-url "$INDEX"} --no-deps /tmp/elastic \
    && rm -r /tmp/elastic
# Whoever it runs as has no home.
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["python", "-m", "elastic", "controller"]
