# The two commands that matter: `make demo` and `make test`. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO_DENY_VERSION := 0.20.2
CACHE := $(or $(OCTAVO_CACHE_DIR),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/octavo,$(HOME)/.cache/octavo))
DENY := $(CACHE)/tools/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny
TARGET := $(or $(CARGO_TARGET_DIR),target)
# `make demo` runs what the tests run: one set of compiled crates serves both.
OCTAVO := $(TARGET)/debug/octavo
# As it is built with the whole workspace: alone it has fewer features, and most crates would be compiled once more.
XTASK := $(TARGET)/debug/xtask
# A clean clone compiles once, so that files for the next compilation are of no use.
ifdef CI
export CARGO_INCREMENTAL := 0
endif
# Flags with which the lab compiles Kubernetes (crates/lab): what is compiled here is found there.
GO_FLAGS := -trimpath -gcflags=all=-dwarf=false

step = @printf '\n\033[1m==> %s\033[0m\n' "$(1)"

# One cargo, one target folder: steps side by side would only wait for one another.
.NOTPARALLEL:
.PHONY: help demo programs build test vm mpi upgrade kubelets nvidia frameworks bench fmt lint unit doc tidy deny clean require

help: ## List the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

demo: programs ## Build all, start a lab with simulated GPU nodes, run the tour and leave it running
	@$(OCTAVO) lab up > /dev/null
	@$(OCTAVO) lab tour --examples examples
	@printf '\n'
	@$(OCTAVO) lab up

# Where no Kubernetes is cached, it is compiled beside Octavo, and `lab up` links it. A failure is reported by
# `lab up`, with its log.
programs: require
	$(call step,build Octavo and the lab's Kubernetes (8 to 10 minutes on two cores the first time))
	@( [ -d $(CACHE)/control-plane ] || { cd lab/control-plane && CGO_ENABLED=0 GOWORK=off go build $(GO_FLAGS) -o /dev/null .; } ) > /dev/null 2>&1 & \
	  cargo build --locked; wait

build: require ## Build the release binary and the simulated driver
	$(call step,build (the first time takes some minutes))
	@cargo build --release --locked

test: require fmt lint unit doc tidy deny ## Run everything that has to pass

vm: require ## Run the tests of a node that is a virtual machine (about 10 minutes)
	$(call step,a node with cgroup version 2 alone, systemd and AppArmor)
	@cargo build --workspace --locked
	@OCTAVO_TEST_VIRTUAL_MACHINE=1 cargo test --workspace --locked --test e2e -- --nocapture virtual_machine

mpi: require ## Run MPI over the simulated NVLink fabric of two real nodes
	$(call step,build (the name server and the MPI operator take 2 to 4 minutes the first time))
	@cargo build --locked
	$(call step,two nodes with four GPUs each and an MPI job with a rank on each GPU)
	@state=$$(mktemp -d); lab="$(OCTAVO) lab --state-dir $$state/lab"; \
	  trap '$$lab down; rm -rf "$$state"' EXIT; \
	  $$lab up --control-plane-only --real-node 2:gb200-tray --controller --mpi-operator > /dev/null; \
	  $$lab kubectl apply -f examples/mpi/fabric.yaml; \
	  $$lab kubectl wait --for=condition=Succeeded --timeout=3m mpijob/fabric || failed=1; \
	  $$lab kubectl logs --tail=-1 -l training.kubeflow.org/job-role=launcher; exit $${failed:-0}

upgrade: require ## Run the test of an upgrade from and a downgrade to OLD, the path of an older octavo
	$(call step,from an older agent to this one and back)
	@[ -x "$(OLD)" ] || { echo "give the path of an older program: make upgrade OLD=../old/target/debug/octavo" >&2; exit 2; }
	@cargo build --workspace --locked
	@OCTAVO_TEST_OLD_PROGRAM="$(abspath $(OLD))" cargo test --workspace --locked --test e2e -- --nocapture upgrade::

# The API server of the lab stays the newest: nodes may be up to three minor versions older.
kubelets: require ## Run tests of real nodes with kubelets of Kubernetes 1.34 and 1.35 (about 20 minutes)
	@cargo build --workspace --locked
	@mkdir -p $(CACHE)/kubelets
	@for version in 1.34 1.35; do \
	  printf '\n\033[1m==> kubelet %s\033[0m\n' $$version; \
	  (cd lab/control-plane && CGO_ENABLED=0 GOWORK=off go build $(GO_FLAGS) -modfile=../kubelets/kubelet-$$version.mod \
	    -o $(CACHE)/kubelets/kubelet-$$version ./kubelet); \
	  OCTAVO_LAB_KUBELET=$(CACHE)/kubelets/kubelet-$$version cargo test --workspace --locked --test e2e -- \
	    --nocapture a_real_kubelet a_release_comes_and_goes; \
	done

nvidia: require ## Run NVIDIA's own device plugin and feature discovery against the agent (about 8 minutes)
	@cargo build --workspace --locked
	$(call step,NVIDIA's programs)
	@mkdir -p $(CACHE)/nvidia
	@cd lab/nvidia && CGO_ENABLED=1 GOWORK=off go build $(GO_FLAGS) -ldflags '-s -w -extldflags=-Wl,-z,lazy' -o $(CACHE)/nvidia/ tool
	@OCTAVO_TEST_NVIDIA_PROGRAMS=$(CACHE)/nvidia cargo test --workspace --locked --test e2e -- --nocapture nvidia_programs::

frameworks: require ## Run PyTorch and CUDA's Python bindings behind the guard (6 GB of packages once, then 2 minutes)
	$(call step,Python's environments)
	@for version in cuda12 cuda13; do \
	  folder=$(CACHE)/frameworks/$$version; \
	  [ -x $$folder/bin/python ] || python3 -m venv $$folder; \
	  $$folder/bin/python -m pip install --quiet --disable-pip-version-check --requirement lab/frameworks/$$version.txt || exit 1; \
	done
	$(call step,frameworks behind the guard)
	@OCTAVO_TEST_FRAMEWORKS=$(CACHE)/frameworks cargo test --locked --package octavo-guard --test charges -- --nocapture frameworks::

bench: build ## Run every benchmark and print its figures
	@cargo xtask bench all

require: ## Name what is missing on this machine, with its remedy
	@.ci/require

fmt: require
	$(call step,format)
	@cargo fmt --all --check

lint: require
	$(call step,clippy)
	@cargo clippy --workspace --all-targets --locked -- -D warnings
	$(call step,go vet)
	@# With the flags of the build, so that both share what they compile.
	@for module in control-plane add-ons; do (cd lab/$$module && CGO_ENABLED=0 GOWORK=off go vet $(GO_FLAGS) ./...); done

unit: require
	$(call step,programs of the tests (Kubernetes, its add-ons and helm are built once))
	@cargo build --workspace --locked
	@state=$$(mktemp -d); lab="$(TARGET)/debug/octavo lab --state-dir $$state/lab"; \
	  trap '$$lab down > /dev/null; rm -rf "$$state"' EXIT; $$lab up --control-plane-only --real-node 1 --dns > /dev/null || $$lab up --control-plane-only --mpi-operator > /dev/null
	@$(XTASK) chart helm-path
	$(call step,tests (the end-to-end ones start the lab))
	@cargo test --workspace --locked

doc: require
	$(call step,documentation)
	@RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked

tidy: require
	$(call step,generated files)
	@cargo build --workspace --locked
	@$(XTASK) generate --check
	$(call step,chart)
	@$(XTASK) chart check
	$(call step,tidy)
	@$(XTASK) tidy

deny: $(DENY)
	$(call step,dependencies)
	@cargo fetch --locked --quiet
	@$(DENY) --locked --offline check bans licenses sources

$(DENY): | require
	$(call step,install cargo-deny $(CARGO_DENY_VERSION) (once))
	@# Unoptimised: it compiles in half the time and checks this workspace in seconds.
	@CARGO_PROFILE_DEV_DEBUG=0 cargo install --debug --locked --root $(CACHE)/tools/cargo-deny-$(CARGO_DENY_VERSION) --version $(CARGO_DENY_VERSION) cargo-deny

clean: ## Stop the lab and remove what was built
	@[ ! -x $(OCTAVO) ] || $(OCTAVO) lab down
	@cargo clean
