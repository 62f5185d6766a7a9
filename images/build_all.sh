#!/usr/bin/env bash
# Builds the images of the project: elastic:torch, elastic:keras, elastic:ci, elastic:controller.
#
#   --only NAME     one of torch, keras, ci, controller; may be given more than once
#   --base IMAGE    what they begin from (python:3.11-slim)
#   --index URL     further package index for pip
#   --push PREFIX   push them too, as PREFIX/elastic:NAME
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

only=() base=python:3.11-slim index='' push=''
while [ $# -gt 0 ]; do
  case $1 in
    --only) only+=("${2:?--only takes torch, keras, ci or controller}") ;;
    --base) base=${2:?--base takes an image} ;;
    --index) index=${2:?--index takes a URL} ;;
    --push) push=${2:?--push takes a registry or a prefix in one} ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
[ ${#only[@]} -gt 0 ] || only=(torch keras ci controller)

# build NAME DOCKERFILE ARGUMENT...: only what the recipes copy is sent, not the whole checkout
copied=(pyproject.toml README.md LICENSE images model_zoo elastic)
build() {
  local name=$1 dockerfile=$2
  shift 2
  tar -c --exclude=__pycache__ "${copied[@]}" |
    docker build -t "elastic:$name" -f "images/$dockerfile" \
      --build-arg "BASE=$base" --build-arg "INDEX=$index" "$@" -
  [ -z "$push" ] || { docker tag "elastic:$name" "$push/elastic:$name"; docker push "$push/elastic:$name"; }
}

for name in "${only[@]}"; do
  case $name in
    torch) build torch base.Dockerfile --build-arg FRAMEWORK=torch ;;
    keras) build keras base.Dockerfile --build-arg FRAMEWORK=tensorflow ;;
    ci) build ci ci.Dockerfile ;;
    controller) build controller controller.Dockerfile ;;
    *) echo "unknown image $name: choose torch, keras, ci or controller" >&2; exit 2 ;;
  esac
done
