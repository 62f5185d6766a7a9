# The image of a job's pods. What changes seldom comes first, so that an edit of the model makes
# the last layer only. `elastic zoo init` writes a copy of this file into a model_zoo as
# elastic.Dockerfile, which then is built instead of it: edit it there.
#
# The context that elastic sends:
#   elastic/requirements.txt   what elastic itself needs
#   elastic/*.whl              the elastic that submits the job
#   requirements/              requirements*.txt and constraints*.txt of the model_zoo
#   model_zoo/                 the model_zoo, less what its .dockerignore names
ARG IMAGE_BASE=python:3.11-slim
FROM ${IMAGE_BASE}
USER root
# Arguments reach pip's environment during the build only.
ARG PIP_NO_CACHE_DIR=1
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG PIP_BREAK_SYSTEM_PACKAGES=1
ARG EXTRA_PYPI_INDEX=
COPY elastic/requirements.txt /opt/elastic/requirements.txt
RUN python -m pip install ${EXTRA_PYPI_INDEX:+--extra-index-url "$EXTRA_PYPI_INDEX"} \
    -r /opt/elastic/requirements.txt
# Both lists at once: pip then refuses what does not go together.
COPY requirements/ /opt/elastic/model_zoo/
RUN python -m pip install ${EXTRA_PYPI_INDEX:+--extra-index-url "$EXTRA_PYPI_INDEX"} \
    -r /opt/elastic/requirements.txt -r /opt/elastic/model_zoo/requirements.txt
# The framework that the model imports, where nothing has brought it so far.
ARG FRAMEWORK=
ARG FRAMEWORK_REQUIREMENT=
RUN test -z "$FRAMEWORK" \
    || python -c "import importlib.util as u; exit(u.find_spec('$FRAMEWORK') is None)" \
    || python -m pip install ${EXTRA_PYPI_INDEX:+--extra-index-url "$EXTRA_PYPI_INDEX"} \
    -r /opt/elastic/requirements.txt -r /opt/elastic/model_zoo/requirements.txt \
    "$FRAMEWORK_REQUIREMENT"
COPY elastic/*.whl /opt/elastic/
# What a base has of the name `elastic` would share its files with this one. Most have none, of which
# pip would warn.
RUN python -m pip uninstall --yes -qq elastic \
    && python -m pip install --no-deps --force-reinstall /opt/elastic/*.whl
# Some libraries want a home they can write to; this user has none.
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /model_zoo
USER 65532:65532
COPY model_zoo/ /model_zoo/
