# Both frameworks and a small data set, for tests and first steps; see build_all.sh.
ARG BASE=python:3.11-slim
FROM ${BASE} AS base
ARG INDEX=
ARG PIP_NO_CACHE_DIR=1
ARG PIP_ROOT_USER_ACTION=ignore
COPY pyproject.toml images/requirements_of.py /tmp/elastic/
RUN python /tmp/elastic/requirements_of.py torch tensorflow > /tmp/elastic/requirements.txt \
    && python -m pip install ${INDEX:+--extra-index-url "$INDEX"} \
    -r /tmp/elastic/requirements.txt \
    && rm -r /tmp/elastic

# scikit-learn has the digits; only what is made of them is kept.
FROM base AS data
RUN python -m pip install scikit-learn
COPY model_zoo/ /model_zoo/
RUN for zoo in mnist:mnist_subclass digits:digits; do \
    name=${zoo%%:*}; \
    python "/model_zoo/${zoo##*:}/prepare_data.py" "/made/$name" \
    && for part in train test; do \
    mkdir -p "/data/$name/$part" && mv "/made/$name/$part.npz" "/data/$name/$part/" || exit 1; \
    done || exit 1; \
    done && chmod -R a+rX /data

FROM base
COPY --from=data /data/ /data/
