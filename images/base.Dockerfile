# A base for models of one framework: `docker build --build-arg FRAMEWORK=torch`, see build_all.sh.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG FRAMEWORK
ARG INDEX=
ARG PIP_NO_CACHE_DIR=1
ARG PIP_ROOT_USER_ACTION=ignore
COPY pyproject.toml images/requirements_of.py /tmp/elastic/
RUN python /tmp/elastic/requirements_of.py $FRAMEWORK > /tmp/elastic/requirements.txt \
    && python -m pip install ${INDEX:+--extra-index-url "$INDEX"} \
    -r /tmp/elastic/requirements.txt \
    && rm -r /tmp/elastic
