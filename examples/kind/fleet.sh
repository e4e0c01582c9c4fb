#!/usr/bin/env bash
# A hub and two workers with kind: clusters, images, charts, agents, queues, one job. Untried as a whole: the development
# environment has no container engine. Its helm, kubectl and switchyard commands are those of docs/first-fleet.md.
#
# Usage: examples/kind/fleet.sh DIST, where DIST is the folder of `cargo xtask release --out DIST`. `fleet.sh --delete` removes all.
set -euo pipefail
if [ "${1:-}" != --delete ]; then dist=$(cd "${1:?the folder of the release}" && pwd); fi
cd "$(dirname "$0")/../.."
clusters=(hub east west)
# A kubeconfig of its own: no context of the user is touched.
mkdir -p target/kind
export KUBECONFIG="$PWD/target/kind/kubeconfig"
if [ "${1:-}" = --delete ]; then
  for name in "${clusters[@]}"; do kind delete cluster --name "$name"; done
  rm -f "$KUBECONFIG"
  exit
fi
case $(uname -m) in
  x86_64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) echo "no release for $(uname -m)" >&2; exit 1 ;;
esac
chart=$(echo "$dist"/switchyard-*.tgz)
export PATH="$PWD/target/kind:$PATH"
install "$dist/switchyard-linux-$arch" target/kind/switchyard

for name in "${clusters[@]}"; do
  kind create cluster --name "$name" --wait 2m
  kubectl config rename-context "kind-$name" "$name"
done
kind load image-archive "$dist/switchyard-hub-image.tar" --name hub
for name in east west; do
  kind load image-archive "$dist/switchyard-agent-image.tar" --name "$name"
done

# All kind clusters share one network, so agents reach a node port of the hub.
helm install switchyard "$chart" --kube-context hub --namespace switchyard-system --create-namespace \
  --set mode=hub,hub.service.type=NodePort --wait
kubectl --context hub apply -f examples/fleet/hub.yaml
for name in east west; do
  switchyard cluster add "$name" --context hub --worker-context "$name" --manifest "$dist/worker.yaml"
  kubectl --context "$name" apply -f examples/worker/queues.yaml
  # A GPU that no device plugin reports, on every node.
  for node in $(kubectl --context "$name" get nodes -o name); do
    kubectl --context "$name" patch "$node" --subresource=status --type=json \
      -p '[{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "4"}]'
  done
done
kubectl --context hub apply -f examples/jobs/job-gpu.yaml
switchyard wait job-gpu -n team-a --context hub --for running --timeout 5m
switchyard get jobs -n team-a --context hub
echo "Reach the clusters with: export KUBECONFIG=$KUBECONFIG"
