# make            build/lockstep and the libraries (release)
# make help       every target

PREFIX   ?= /usr/local
override PREFIX := $(abspath $(PREFIX))
BUILD    ?= build
CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
# The compiler of an MPI says which: MPICC=/opt/mpi/bin/mpicc.
MPICC    ?= mpicc
MPI      ?= $(shell command -v $(MPICC) >/dev/null 2>&1 && echo 1 || echo 0)
SANITIZE ?=
DEBUG    ?= $(if $(SANITIZE),1,0)
WERROR   ?= 0
VERSION  := 0.1.0
# Raised when a program that was linked with the library before would no longer run with this one.
SONAME   := liblockstep.so.0

# Compiles through ccache where it is installed; CCACHE= turns that off.
CCACHE   ?= $(shell command -v ccache 2>/dev/null)

# V=1 shows the commands.
V        ?= 0
ifeq ($(V),0)
Q        := @
say       = @printf '%-4s %s\n' $(1) $(2)
else
say       = @true
endif

.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules
# Parallel by default: as many jobs as cores.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

LIBS_PC  := libfyaml jansson libpcre2-8 libutf8proc libxxhash libzstd zlib hwloc liburing nettle
CFLAGS_BASE := -std=c11 -D_GNU_SOURCE -DLS_VERSION='"$(VERSION)"' -Iinclude -Isrc -fopenmp -pthread \
	-fPIC -Wall -Wextra -Wvla \
	-Wmissing-prototypes -Wfloat-conversion $(shell pkg-config --cflags $(LIBS_PC) libcurl 2>/dev/null)
# Objects name no folder above the tree, so that ccache gives one clone what another compiled.
CFLAGS_BASE += -ffile-prefix-map='$(CURDIR)'=.
ifeq ($(WERROR),1)
CFLAGS_BASE += -Werror
endif
ifeq ($(DEBUG),1)
# At -O1 gcc does not see the checks of lengths and pointers that rule these two out.
CFLAGS_BASE += $(if $(SANITIZE),-g1,-g) -O1 -DLS_COMM_CHECK=1 -DLS_MEMORY_CHECK=1 \
	$(if $(findstring clang,$(CC)),,-Wno-format-truncation -Wno-maybe-uninitialized)
else
CFLAGS_BASE += -g1 -O3 -DNDEBUG
# Tests compute little themselves: at -O3 they take a third longer to compile.
TEST_LEVEL ?= -O2
endif
ifneq ($(SANITIZE),)
CFLAGS_BASE += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer
LDFLAGS_BASE := -fsanitize=$(SANITIZE)
endif
LDLIBS := $(shell pkg-config --libs $(LIBS_PC) 2>/dev/null) -lisal -lm -pthread -fopenmp
LDLIBS_ALONE := $(LDLIBS)
ifeq ($(MPI),1)
MPI_SAYS := $(shell $(MPICC) -show)
CFLAGS_BASE += -DLS_WITH_MPI=1 $(filter -I% -D%,$(MPI_SAYS))
LDLIBS += $(filter -L% -l% -Wl% -pthread,$(MPI_SAYS))
endif
# The bits depend on these, so they come last: -ffast-math among CFLAGS has no effect.
CFLAGS_BITS := -fno-fast-math -ffp-contract=off -fno-math-errno -fno-trapping-math
CFLAGS_ALL = $(CFLAGS_BASE) $(CFLAGS) $(CFLAGS_BITS)

# What objects are compiled with: when it changes, they are compiled again. Warnings change none.
FLAGS := $(filter-out -Werror,$(CC) $(CFLAGS_ALL) $(LDFLAGS_BASE) $(LDFLAGS))
$(BUILD)/flags: always
	@mkdir -p $(@D)
	@new='$(subst ','\'',$(FLAGS))'; [ "$$new" = "$$(cat $@ 2>/dev/null)" ] || printf '%s\n' "$$new" > $@

# src/ops/kern/*.c is compiled once per instruction set, with LS_KERNEL_ISA naming it.
KERNELS  := $(wildcard src/ops/kern/*.c)
SOURCES  := $(filter-out $(KERNELS),$(wildcard src/*/*.c))
ISAS     := plain
ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine)),)
ISAS     += avx2 avx512
endif
ISA_FLAGS_plain  :=
ISA_FLAGS_avx2   := -mavx2 -mfma -mf16c
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512
OBJECTS  := $(SOURCES:%.c=$(BUILD)/%.o) \
	$(foreach isa,$(ISAS),$(KERNELS:%.c=$(BUILD)/%.$(isa).o))
COMMANDS := $(wildcard cmd/*.c)
TESTS    := $(patsubst %.c,$(BUILD)/%,$(wildcard test/*/test_*.c))
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c))

.PHONY: all help
all: $(if $(COMMANDS),$(BUILD)/lockstep) $(BUILD)/liblockstep.a $(BUILD)/liblockstep.so \
	$(BUILD)/lockstep-uninstalled.pc

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CCACHE) $(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@
$(BUILD)/test/%.o: private CFLAGS_BASE += $(TEST_LEVEL)
intrinsics = $(if $(filter-out plain,$(ISAS)),$(shell sed -n 's|^/\* cflags: \(.*\) \*/$$|\1|p' $(1)))
# Files that hold intrinsics above the base instruction set name their flags in a line
# "/* cflags: ... */" near the top.
$(BUILD)/src/ops/%.o: src/ops/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CCACHE) $(CC) $(CFLAGS_ALL) $(call intrinsics,$<) -MMD -MP -c $< -o $@
define isa_rule
$(BUILD)/%.$(1).o: %.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(call say,CC,$$@)
	$(Q)$(CCACHE) $(CC) $$(CFLAGS_ALL) $(ISA_FLAGS_$(1)) -DLS_KERNEL_ISA=$(1) -MMD -MP -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

# The commit that is built, "-dirty" where tracked files differ from it, "unknown" outside of git. The
# file changes only where its text does, so that a later commit builds one object and links.
.PHONY: always
$(BUILD)/commit: always
	@mkdir -p $(@D)
	@new=$$(tools/commit.sh); [ "$$new" = "$$(cat $@ 2>/dev/null)" ] || echo "$$new" > $@
$(BUILD)/src/base/version.o: CFLAGS_BASE += -DLS_COMMIT="\"$$(cat $(BUILD)/commit)\""
$(BUILD)/src/base/version.o: $(BUILD)/commit

# Text files as strings of C.
$(BUILD)/%.inc: %
	@mkdir -p $(@D)
	$(Q)sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $< > $@
$(BUILD)/src/planner/lesson.o: CFLAGS_BASE += -I$(BUILD)
$(BUILD)/src/planner/lesson.o: $(addprefix $(BUILD)/,src/planner/lessons.txt.inc clusters/h100-2048.yaml.inc)

$(BUILD)/liblockstep.a: $(OBJECTS)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)ar rcs $@ $(OBJECTS)
$(BUILD)/$(SONAME): $(OBJECTS)
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) $(LDFLAGS_BASE) $(LDFLAGS) $(OBJECTS) $(LDLIBS) -o $@
# The linker looks for this name, the started program for the other.
$(BUILD)/liblockstep.so: $(BUILD)/$(SONAME)
	$(Q)ln -sf $(SONAME) $@
$(BUILD)/lockstep: $(COMMANDS:%.c=$(BUILD)/%.o) $(BUILD)/liblockstep.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_BASE) $(LDFLAGS) $^ $(LDLIBS) -o $@

# What the Python package holds of these (tools/python_wheel.py): built without MPI and, where MPI is,
# with it in a folder below. The few files that use MPI are compiled a second time. The program is linked
# with the shared library beside it, and both look there for other libraries first.
PACKAGED  := $(BUILD)/packaged
USE_MPI   := $(shell grep -l LS_WITH_MPI src/*/*.c cmd/*.c)
alone      = $(foreach o,$(1),$(if $(filter $(USE_MPI:%.c=$(BUILD)/%.o),$(o)),$(o:$(BUILD)/%=$(BUILD)/alone/%),$(o)))
$(BUILD)/alone/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CCACHE) $(CC) $(filter-out -DLS_WITH_MPI=1,$(CFLAGS_ALL)) -MMD -MP -c $< -o $@
# The arguments: folder, objects of the library, of the program, libraries, where to look for these.
define packaged_rules
$(1)/$(SONAME): $(2)
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) $(5) $$(LDFLAGS_BASE) $$(LDFLAGS) $$^ $(4) -o $$@
$(1)/lockstep: $(3) $(1)/$(SONAME)
	$$(call say,LD,$$@)
	$(Q)$(CC) $(5) $$(LDFLAGS_BASE) $$(LDFLAGS) $$^ $(4) -o $$@
packaged: $(1)/lockstep
endef
COMMAND_OBJECTS := $(COMMANDS:%.c=$(BUILD)/%.o)
RUN_PATH := -Wl,--disable-new-dtags,-rpath,'$$$$ORIGIN
.PHONY: packaged
packaged:
$(eval $(call packaged_rules,$(PACKAGED),$(call alone,$(OBJECTS)),$(call alone,$(COMMAND_OBJECTS)),$(LDLIBS_ALONE),$(RUN_PATH)'))
ifeq ($(MPI),1)
$(eval $(call packaged_rules,$(PACKAGED)/mpi,$(OBJECTS),$(COMMAND_OBJECTS),$(LDLIBS),$(RUN_PATH):$$$$ORIGIN/..'))
endif

# Tests: one program per test/<module>/test_*.c, linked with cmocka. Other test/<module>/*.c files are
# shared helpers of that module's tests, test/support/*.c of all.
TEST_HELPERS = $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(wildcard test/*/test_*.c test/*/fuzz_*.c),\
	$(wildcard test/$(1)/*.c test/support/*.c)))
.SECONDEXPANSION:
$(TESTS): $(BUILD)/%: $(BUILD)/%.o $$(call TEST_HELPERS,$$(word 2,$$(subst /, ,$$*))) $(BUILD)/liblockstep.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_BASE) $(LDFLAGS) $^ -lcmocka $(LDLIBS) -o $@
# This one counts the allocations of our objects (not those inside other libraries).
$(BUILD)/test/train/test_trainer: LDFLAGS_BASE += \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=mmap
# These put faults in place of functions: their broken twins.
empty :=
wrap = -Wl$(subst $(empty) ,,$(foreach name,$(1),,--wrap=$(name)))
$(filter $(BUILD)/test/invariance/%,$(TESTS)): private LDFLAGS_BASE += $(call wrap,ls_reduce_scatter_start \
	ls_all_reduce_start ls_all_reduce_leaves_start ls_layer_backward_weight ls_layer_forward_again ls_optimizer_step \
	ls_send_start ls_param_fill ls_dp_micro_batch ls_loss_scale_update ls_newton_schulz ls_tier_write \
	ls_loader_post_runs ls_blocks_quantize ls_gemm_run)
$(BUILD)/test/device/test_device: private LDFLAGS_BASE += $(call wrap,sched_getaffinity sysconf fopen)
$(BUILD)/test/device/test_swap: private LDFLAGS_BASE += $(call wrap,ls_tier_write ls_transfer_wait)
$(BUILD)/test/device/test_pass: private LDFLAGS_BASE += $(call wrap,ls_tier_read ls_tier_write ls_transfer_wait)
$(BUILD)/test/train/test_offload_faults: private LDFLAGS_BASE += $(call wrap,ls_tier_new ls_tier_read ls_tier_write \
	ls_tier_room_take tier_settle ls_optimizer_step)
$(BUILD)/test/data/test_store_tools $(BUILD)/test/interop/test_cut_files: private LDFLAGS_BASE += $(call wrap,ls_fd_read)
$(BUILD)/test/interop/test_adapters: private LDFLAGS_BASE += $(call wrap,ls_param_adapter)
$(BUILD)/test/ckpt/test_checkpoint: private LDFLAGS_BASE += $(call wrap,posix_fadvise close ls_helper_start)
$(BUILD)/test/ckpt/test_read_ahead: private LDFLAGS_BASE += $(call wrap,open close pread ls_stored_file_cached)
$(BUILD)/test/state/test_state: private LDFLAGS_BASE += $(call wrap,ls_checkpoint_expect ls_checkpoint_take)
$(BUILD)/test/infer/test_infer: private LDFLAGS_BASE += $(call wrap,ls_all_gather_start)
$(BUILD)/test/comm/test_split_mpi: private LDFLAGS_BASE += $(call wrap,calloc)
$(BUILD)/test/compare/test_verify_ends: private LDFLAGS_BASE += $(call wrap,ls_proof_threads ls_proof_trace)
$(BUILD)/test/session/test_session: private LDFLAGS_BASE += $(call wrap,ls_distribute_replicated ls_world_run)
$(BUILD)/test/infer/test_generate: private LDFLAGS_BASE += $(call wrap,ls_device_memory)
$(BUILD)/test/infer/test_samples: private LDFLAGS_BASE += $(call wrap,text_blocks_share)
# These run commands late (test/support/late_queue.h).
LATE     := $(addprefix $(BUILD)/test/train/,test_commands test_golden test_late)
$(LATE): private LDFLAGS_BASE += $(call wrap,ls_arena_init ls_ops_init ls_trainer_step ls_trainer_free)
$(BUILD)/test/train/test_commands: private LDFLAGS_BASE += $(call wrap,ls_layer_backward_weight)
$(BUILD)/test/train/test_late: private LDFLAGS_BASE += $(call wrap,ls_comm_set_queue ls_tier_set_queue)
# These share a clock among their ranks (test/support/turned_clock.h).
TURNED   := $(addprefix $(BUILD)/test/,cmd/test_disk cmd/test_hang comm/test_watch comm/test_watch_mpi \
	train/test_drift train/test_drift_mpi)
$(TURNED): private LDFLAGS_BASE += $(call wrap,ls_now_s flight_wait_begin flight_wait_moved flight_wait_seen \
	flight_wait_look pthread_cond_timedwait sched_yield sysconf)
$(filter $(BUILD)/test/train/%,$(TURNED)): private LDFLAGS_BASE += $(call wrap,ls_optimizer_step ls_loader_take)
$(BUILD)/test/parallel/test_pipeline_bubble: private LDFLAGS_BASE += $(call wrap,ls_now_s nanosleep ls_send_start \
	ls_recv_start ls_wait)
$(BUILD)/test/planner/test_measure: private LDFLAGS_BASE += $(call wrap,ls_gemm_peak ls_ops_init ls_tier_read ls_tier_write)
$(BUILD)/test/planner/test_search: private LDFLAGS_BASE += $(call wrap,ls_simulation_new ls_schedule_simulate ls_now_s \
	ls_record_works)
$(BUILD)/test/planner/test_storage: private LDFLAGS_BASE += $(call wrap,ls_optimizer_step ls_token_store_read ls_loader_take)
$(BUILD)/test/train/test_host_reads: private LDFLAGS_BASE += $(call wrap,ls_layer_backward_weight ls_iota)
$(BUILD)/test/train/test_given: private LDFLAGS_BASE += $(call wrap,ls_layer_forward ls_cross_entropy_finish)
$(BUILD)/test/train/test_rollout: private LDFLAGS_BASE += $(call wrap,ls_send_start ls_recv_start ls_arena_init ls_zero_weights)
$(BUILD)/test/train/test_trainer_moves: private LDFLAGS_BASE += $(call wrap,ls_test ls_comm_command)
# These run commands in their own processes, on a clock of their own.
COMMAND_TESTS := $(addprefix $(BUILD)/test/,cmd/test_progress cmd/test_plan_time cmd/test_hang launch/test_launch)
$(COMMAND_TESTS): $(filter-out $(BUILD)/cmd/main.o,$(COMMANDS:%.c=$(BUILD)/%.o))
$(COMMAND_TESTS): private LDLIBS := $(BUILD)/liblockstep.a $(LDLIBS)
$(BUILD)/test/cmd/test_progress: private LDFLAGS_BASE += $(call wrap,ls_now_s ls_meter dnnl_primitive_execute)
$(BUILD)/test/cmd/test_plan_time: private LDFLAGS_BASE += $(call wrap,ls_now_s ls_search_run)
$(BUILD)/test/cmd/test_hang: private LDFLAGS_BASE += $(call wrap,train_late_grace)
$(BUILD)/test/cmd/test_second_copy: private LDFLAGS_BASE += $(call wrap,ls_place_open)
$(BUILD)/test/launch/test_launch_known: private LDFLAGS_BASE += $(call wrap,fork memfd_create getifaddrs freeifaddrs process_sweep \
	ls_record_works)
$(BUILD)/test/launch/test_run_status: private LDFLAGS_BASE += $(call wrap,ls_jsonl_each)
$(BUILD)/test/launch/test_launch: private LDFLAGS_BASE += $(call wrap,ls_now_s ls_trainer_step)
# This one moves a run's folder under it.
$(BUILD)/test/train/test_moved: private LDFLAGS_BASE += $(call wrap,open fopen mkdir rename renameat2 fsync)
# This one is killed before calls, or has them fail.
$(BUILD)/test/train/test_async_saves: private LDFLAGS_BASE += $(call wrap,ls_device_memory ls_fd_read ls_file_maps_keep mmap open write fsync mkdir rename renameat2 unlinkat rmdir ls_trainer_step ls_saving_done run_save_end)
$(BUILD)/test/train/test_snapshots: private LDFLAGS_BASE += $(call wrap,ls_atomic_file_map ls_device_memory ls_directory_remove ls_saving_begin open write fsync mkdir rename renameat2 unlinkat rmdir)
# These are broken twins of a recovery, and of the order in which a checkpoint is made durable.
$(BUILD)/test/train/test_workers_snapshots: private LDFLAGS_BASE += $(call wrap,open write fsync mkdir rename renameat2 unlinkat rmdir ls_run_open \
	ls_run_step ls_comm_on_machine ls_comm_first_on_machine ls_saving_begin_among ls_checkpoint_writer_replicate \
	ls_checkpoint_writer_cancel)
$(BUILD)/test/train/test_recovery_twins: private LDFLAGS_BASE += $(call wrap,ls_state_publish ckpt_token_check \
	ckpt_files_move ls_comm_on_machine ls_comm_first_on_machine)
$(BUILD)/test/ckpt/test_commit_order: private LDFLAGS_BASE += $(call wrap,write fsync rename renameat2)
# These hear how far works are.
$(addprefix $(BUILD)/test/,data/test_prepare infer/test_infer infer/test_score infer/test_generate interop/test_export planner/test_search): \
	private LDFLAGS_BASE += $(call wrap,ls_meter)
$(BUILD)/test/data/test_prepare: private LDFLAGS_BASE += $(call wrap,malloc calloc realloc memmove write \
	ls_atomic_file_printf)
# These have a clock of their own.
$(BUILD)/test/base/test_meter $(BUILD)/test/comm/test_inquire: private LDFLAGS_BASE += $(call wrap,ls_now_s)
$(BUILD)/test/net/test_http: private LDFLAGS_BASE += $(call wrap,ls_now_s nanosleep)
# In this one time is what the test says that a part takes.
$(BUILD)/test/train/test_trace_times: private LDFLAGS_BASE += $(call wrap,ls_now_s clock_gettime ls_loader_take \
	ls_layer_forward ls_layer_backward_weight ls_optimizer_step comm_thread_wait \
	ls_test sysconf)
# This one has a rank that computes wrongly, and a replay that is not compared.
$(BUILD)/test/train/test_resumed: private LDFLAGS_BASE += $(call wrap,ls_param_fill)
$(BUILD)/test/train/test_step_replay: private LDFLAGS_BASE += $(call wrap,ls_optimizer_step ls_trainer_hash replay_new)
# This one flips a bit of what a rank holds.
$(BUILD)/test/train/test_memory_flips: private LDFLAGS_BASE += $(call wrap,trainer_new replay_due ls_trainer_step)
$(BUILD)/test/train/test_data_supply: private LDFLAGS_BASE += $(call wrap,ls_loader_prefetch)
# This one counts what a trainer sent.
$(BUILD)/test/train/test_workers: private LDFLAGS_BASE += $(call wrap,ls_trainer_free ls_state_norm ls_peak_given ls_loader_take ls_gemm_peak \
	ls_slice_visit_array ls_all_to_all_start ls_all_gather_start ls_delta_sum ls_runner_sample)
$(BUILD)/test/train/test_between_steps: private LDFLAGS_BASE += $(call wrap,ls_loader_take trainer_save \
	ls_runner_evaluate ls_tensorboard_open)
# This one sends stale deltas, adds workers in another order, forgets the outer momentum and mixes up
# samples; it takes each outer step beside the run.
$(BUILD)/test/train/test_workers_reference: private LDFLAGS_BASE += $(call wrap,step_once exchange_end ls_delta_encode \
	ls_delta_sum ls_state_load workers_place ls_loader_post_runs ls_loader_take)
# In this one workers that are away add deltas, or come again with old moments, and a mean is over all; it
# takes each outer step beside the run.
$(BUILD)/test/train/test_members: private LDFLAGS_BASE += $(call wrap,members_next exchange_begin exchange_end ls_fill_zero \
	ls_optimizer_step ls_loader_post_runs)
# This one takes events in another order, parameters too early and batches twice; it computes each push
# beside the run.
$(BUILD)/test/train/test_server_reference: private LDFLAGS_BASE += $(call wrap,ls_optimizer_step ls_arrivals_worker \
	ls_copy ls_compensate workers_place)
# In this one it is seen that who takes part is on the disk.
$(BUILD)/test/train/test_workers_files: private LDFLAGS_BASE += $(call wrap,fdatasync ls_checkpoint_steps)
# In this one a worker is late; it gets parameters too early, or takes a batch twice.
$(BUILD)/test/train/test_server_clock: private LDFLAGS_BASE += $(call wrap,server_gradient server_masters ls_arrival_log_add fdatasync)
# In this one a rank is killed before, in and behind a meeting, and a worker that is lost adds its delta.
$(BUILD)/test/train/test_workers_rescue: private LDFLAGS_BASE += $(call wrap,step_once exchange_begin exchange_wait \
	exchange_end members_next workers_save ls_all_gather_start)
# In this one a group of workers forgets who is before it.
$(BUILD)/test/train/test_workers_admitted: private LDFLAGS_BASE += $(call wrap,workers_shift)
# In this one a worker stops or is killed at its gradient.
$(BUILD)/test/train/test_server_mpi: private LDFLAGS_BASE += $(call wrap,server_gradient)
$(BUILD)/test/train/test_server_rescue: private LDFLAGS_BASE += $(call wrap,server_gradient server_pack \
	server_add server_states workers_save server_pulled workers_rescue ls_comm_leave)
# This one compares nothing: an audit's twin.
$(BUILD)/test/cmd/test_audit: private LDFLAGS_BASE += $(call wrap,ls_rerun_check)
# These count calls.
$(BUILD)/test/base/test_base: private LDFLAGS_BASE += $(call wrap,snprintf)
$(BUILD)/test/convert/test_convert: private LDFLAGS_BASE += $(call wrap,strcmp)
# This one makes the disk slow.
$(BUILD)/test/cmd/test_disk: private LDFLAGS_BASE += $(call wrap,write)
$(BUILD)/test/device/test_tier: private LDFLAGS_BASE += $(call wrap,tier_may_begin)
$(BUILD)/test/device/test_tier_faults: private LDFLAGS_BASE += $(call wrap,tier_settle)
# These run the program.
$(filter $(BUILD)/test/cmd/% $(BUILD)/test/hosts/% $(BUILD)/test/launch/%,$(TESTS)): | $(BUILD)/lockstep
$(filter $(BUILD)/test/hosts/% $(BUILD)/test/launch/%,$(TESTS)): $(BUILD)/test/cmd/run_program.o
LAUNCHED := $(addprefix $(BUILD)/test/hosts/,test_launch_hosts test_slurm)
$(LAUNCHED): $(BUILD)/test/launch/launched.o
$(LAUNCHED): private LDLIBS := $(BUILD)/liblockstep.a $(LDLIBS)
$(BUILD)/test/hosts/test_hosts: | $(BUILD)/test/cmd/test_disk
$(filter $(BUILD)/test/install/%,$(TESTS)): | all
$(EXAMPLES): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/liblockstep.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_BASE) $(LDFLAGS) $^ $(LDLIBS) -o $@

# What computes, and takes the instruction set from LOCKSTEP_ISA: tools/run-tests.py runs these again
# on the lesser sets. Tests that go through the sets by themselves need no second run: some of ops,
# test_golden, which trains every kind of recipe on each, and those of invariance, which draw
# numerics.isa. infer has no kernels: nn/test_steps_decode computes what it computes.
ISA_TESTS = $(filter $(addprefix $(BUILD)/test/,ops/test_embedding ops/test_norm ops/test_pointwise \
	ops/test_position ops/test_loss ops/test_update ops/test_stochastic optim/% nn/% \
	parallel/test_tensor_parallel parallel/test_zero%),$(TESTS))

.PHONY: tests examples objects
tests: $(TESTS)
examples: $(EXAMPLES)
# What tests and examples consist of, for a compiler whose warnings alone are looked at: TEST_LEVEL=-O0.
objects: $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(wildcard test/*/fuzz_*.c),$(wildcard test/*/*.c examples/*.c)))

# ---- what users call -------------------------------------------------------------------------------

N        ?= 120
SEED     ?= 1
STEPS    ?= 20
SECONDS  ?= 60
MINUTES  ?= 60
KILLS    ?= 1000
PEERS    ?=
# Of `make check`: all runs what each program can; a file of weights to write; what changed since when.
CHECK    ?=
RECORD   ?=
CHANGED  ?=
SINCE    ?= origin/main
# Of `make interop`: models of each family; a Python that has its packages.
COUNT    ?= 3
PYTHON   ?=
# GiB of a rank's device, of `make what-fits`.
DEVICE   ?= 24
# What `make deps` installs changes what this file finds: the work goes on in a second make.
AGAIN     = +$(MAKE) --no-print-directory

.PHONY: deps check check-all check-built check-module check-pages nightly soak faults-kills tested run-tested demo interop invariance exhaustive faults faults-files faults-memory what-fits tidy fuzz bench bench-peers bench-plan bench-layouts bench-checkpoint coverage install \
	uninstall man wheel wheel-facts report-shots clean
deps:
	@tools/install-deps.sh

# Which programs of those given to run: all, or with CHANGED=1 those that changed files reach.
CHECKED   = $(TESTS) $(EXAMPLES) tools/check-pages.py test/python/run_pytest.py
RUN_TESTS = BUILD=$(BUILD) LOCKSTEP=$(BUILD)/lockstep ISA_TESTS="$(ISA_TESTS)" tools/run-tests.py \
	$(if $(RECORD),--record)
check: deps
	$(AGAIN) check-built
check-all: deps
	$(AGAIN) check-built CHECK=all
check-built: all tests examples
	@LOCKSTEP=$(BUILD)/lockstep tools/what-fits.py --check doc/memory.md
	@programs="$(CHECKED)"; \
	$(if $(CHANGED),programs=$$(tools/tests-reached.py $(BUILD) $(SINCE) $(CHECKED)) || exit; )\
	CHECK=$(CHECK) $(RUN_TESTS) $$programs
# make check-ops: the tests of one module; with CHECK=all as check-all runs them.
check-%: deps
	$(AGAIN) check-module MODULE=$*
# make tested TESTED="base/% comm/test_thread": builds some programs; run-tested runs them.
SOME_TESTS = $(sort $(foreach word,$(TESTED),$(or $(filter $(BUILD)/test/$(word),$(TESTS)),\
	$(error TESTED = $(word): no program of test/ has this name: expected base/test_file or base/%))))
tested: $(SOME_TESTS)
run-tested: tested
	@$(if $(SOME_TESTS),,echo "TESTED: expected names of test programs, such as base/test_file or base/%" >&2; exit 2)
	@CHECK=$(CHECK) ISA_TESTS= $(RUN_TESTS) $(SOME_TESTS)
check-module: $(filter $(BUILD)/test/$(MODULE)/%,$(TESTS))
	@$(if $^,,echo "no tests in test/$(MODULE)" >&2; exit 2)
	@CHECK=$(CHECK) $(RUN_TESTS) $^

nightly: deps
	$(AGAIN) all
	@tools/nightly.sh

# A job that loses ranks, mpirun and its launcher: a fault a minute; or kills as fast as it comes back.
soak: all
	@BUILD=$(BUILD) tools/soak.py --minutes $(MINUTES) --seed $(SEED)
faults-kills: all $(BUILD)/test/hosts/test_launch_hosts
	@BUILD=$(BUILD) tools/soak.py --kills $(KILLS) --seed $(SEED)

# The commands of README.md and of every page under doc/, as they stand there.
check-pages: deps
	$(AGAIN) all
	@CHECK=all BUILD=$(BUILD) tools/check-pages.py

demo: deps
	$(AGAIN) all
	@LOCKSTEP=$(BUILD)/lockstep tools/demo.sh

invariance: $(BUILD)/test/invariance/test_invariance
	$< $(N) $(SEED) $(STEPS)

exhaustive: $(BUILD)/test/invariance/test_exhaustive
	$< 1

# COUNT bits of a checkpoint's files flipped and COUNT / 10 files cut short, one at a time; COUNT bits
# of what live ranks hold.
faults: faults-files faults-memory faults-kills
# COUNT of the command line, or so many.
count_or = $(if $(filter command,$(firstword $(origin COUNT))),$(COUNT),$(1))
faults-files: $(BUILD)/test/state/test_file_faults
	$< $(call count_or,10000) $(SEED)
faults-memory: $(BUILD)/test/train/test_memory_flips
	$< $(call count_or,1000) $(SEED)

what-fits: all
	@LOCKSTEP=$(BUILD)/lockstep tools/what-fits.py --device $(DEVICE)

tidy:
	@tools/tidy.py
	@tools/run-tests.py --self-test
	@tools/tests-reached.py --self-test
	@! $(MAKE) -n TESTED='base/% base/none' tested >/dev/null 2>&1 || { echo 'TESTED=base/none: not refused' >&2; exit 1; }
	@tools/check-docs.py --self-test
	@tools/soak.py --self-test
	@tools/check-docs.py
	@tools/picture-one-hash.py --check

FUZZERS := $(patsubst %.c,$(BUILD)-fuzz/%,$(wildcard test/*/fuzz_*.c))
fuzz:
	+$(MAKE) --no-print-directory BUILD=$(BUILD)-fuzz CC=clang MPI=0 \
		SANITIZE=address,undefined,fuzzer-no-link fuzzers
	@for fuzzer in $(FUZZERS); do echo "== $$fuzzer"; mkdir -p $$fuzzer.corpus; \
		(cd $$fuzzer.corpus && UBSAN_OPTIONS=halt_on_error=1 '$(CURDIR)'/$$fuzzer -max_total_time=$(SECONDS) -print_final_stats=1 \
		-verbosity=0 . ) || exit 1; done
.PHONY: fuzzers
fuzzers: $(patsubst %.c,$(BUILD)/%,$(wildcard test/*/fuzz_*.c))
$(BUILD)/test/%: $(BUILD)/test/%.o $(BUILD)/liblockstep.a
	$(call say,LD,$@)
	$(Q)$(CC) -fsanitize=fuzzer $(LDFLAGS_BASE) $(LDFLAGS) $^ $(LDLIBS) -o $@

report-shots: all
	test/cmd/report_shots.py $(BUILD)/lockstep $(BUILD)/report-shots

interop: all $(BUILD)/examples/dpo
	@PYTHON="$(PYTHON)" tools/interop.sh interop_tokenizer.py $(BUILD)/liblockstep.so --seed $(SEED)
	@PYTHON="$(PYTHON)" tools/interop.sh interop.py --lockstep $(BUILD)/lockstep \
		--library $(BUILD)/liblockstep.so --seed $(SEED) --count $(COUNT)
	@PYTHON="$(PYTHON)" tools/interop.sh interop_chat.py --lockstep $(BUILD)/lockstep --seed $(SEED)
	@PYTHON="$(PYTHON)" tools/interop.sh interop_config.py --library $(BUILD)/liblockstep.so
	@PYTHON="$(PYTHON)" tools/interop.sh interop_checkpoint.py --lockstep $(BUILD)/lockstep \
		--library $(BUILD)/liblockstep.so
	@PYTHON="$(PYTHON)" tools/interop.sh interop_place.py --lockstep $(BUILD)/lockstep
	@PYTHON="$(PYTHON)" tools/interop.sh interop_workers.py --lockstep $(BUILD)/lockstep --seed $(SEED)
	@PYTHON="$(PYTHON)" tools/interop.sh interop_dpo.py --lockstep $(BUILD)/lockstep \
		--example $(BUILD)/examples/dpo --seed $(SEED)
	@PYTHON="$(PYTHON)" PYTHONPATH=python tools/interop.sh interop_trl.py --seed $(SEED) \
		--count $(call count_or,20)
	@PYTHON="$(PYTHON)" tools/interop.sh interop_nf4.py --lockstep $(BUILD)/lockstep
	@PYTHON="$(PYTHON)" tools/interop.sh interop_parquet.py --lockstep $(BUILD)/lockstep \
		--seed $(SEED)

bench: all
	$(BUILD)/lockstep bench int8
	$(BUILD)/lockstep bench ops
	$(BUILD)/lockstep bench comm ranks=2
	$(BUILD)/lockstep bench pipeline
	$(BUILD)/lockstep bench step
	$(BUILD)/lockstep bench tier folder=$(BUILD)
	$(BUILD)/lockstep bench interop folder=$(BUILD)

bench-peers: all
	python3 bench/peers/run.py $(PEERS)

bench-plan: all
	python3 tools/bench-plan.py --write

bench-layouts: all $(BUILD)/test/hosts/test_measure_hosts
	python3 bench/layouts.py --lockstep $(BUILD)/lockstep \
		--hosts $(BUILD)/test/hosts/test_measure_hosts --write

bench-checkpoint: all
	tools/bench-checkpoint.py --write

coverage:
	+$(MAKE) --no-print-directory BUILD=$(BUILD)-coverage CFLAGS=--coverage LDFLAGS=--coverage \
		CHECK=$(CHECK) check-built
	@tools/coverage.sh $(BUILD)-coverage

man: $(BUILD)/man/lockstep.1
$(BUILD)/man/lockstep.1: $(BUILD)/lockstep
	@mkdir -p $(BUILD)/man
	@$(BUILD)/lockstep help --list | while read -r page; do \
		name=lockstep$$(test "$$page" = lockstep || echo "-$$page" | tr ' ' -); \
		$(BUILD)/lockstep help --man "$$page" > $(BUILD)/man/$$name.1; done
	@$(BUILD)/lockstep help --man lockstep > $(BUILD)/man/lockstep.1

# dist/lockstep-VERSION-py3-none-manylinux_*.whl: the Python package with the library, the program and
# every library that they need but MPI.
wheel: packaged
	@CC='$(CC)' tools/python_wheel.py wheel dist $(PACKAGED)
# What tools/python_wheel.py asks.
wheel-facts:
	@printf '%s\n' 'version=$(VERSION)' 'libraries=$(LIBS_PC)' 'compiler=$(CC)' 'packaged=$(PACKAGED)'

# The arguments: folder of the libraries, folder of the headers, file. The run path lets a program
# start from wherever the library lies; folders that the system's linker searches need none. Objects of
# a static library with counters of coverage, or with sanitizers, need these at the link.
LIBDIR   ?= $(PREFIX)/lib
override LIBDIR := $(abspath $(LIBDIR))
override DESTDIR := $(abspath $(DESTDIR))
# Two words would be two paths, and `uninstall` would remove both.
$(if $(filter install uninstall,$(MAKECMDGOALS)),$(foreach path,PREFIX LIBDIR DESTDIR,$(if \
	$(word 2,$($(path))),$(error $(path): expected a path without blanks))))
SEARCHED := /lib/% /usr/lib /usr/lib/% /usr/local/lib
define pc_write
	@printf '%s\n' 'libdir=$(1)' 'includedir=$(2)' '' 'Name: lockstep' \
		'Description: trains large language models, the same bits in any layout' \
		'Version: $(VERSION)' 'Cflags: -I$${includedir}' \
		'Libs: -L$${libdir}$(if $(filter $(SEARCHED),$(1)),, -Wl$(comma)-rpath$(comma)$${libdir}) -llockstep' \
		'Libs.private: $(strip $(LDLIBS) $(filter --coverage -fsanitize=%,$(LDFLAGS_BASE) $(LDFLAGS)))' > $(3)
endef
comma := ,
escaped = $(subst $(empty) ,\ ,$(1))
# With PKG_CONFIG_PATH=build, pkg-config finds this one: programs link with the build tree, which may
# have been moved.
$(BUILD)/lockstep-uninstalled.pc: always
	@mkdir -p $(@D)
	$(call pc_write,$(call escaped,$(abspath $(BUILD))),$(call escaped,$(CURDIR)/include),$@)

COMPLETIONS = $(PREFIX)/share/bash-completion/completions
install: all man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)/pkgconfig \
		$(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(COMPLETIONS)
	install -m 755 $(BUILD)/lockstep $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(BUILD)/liblockstep.a $(DESTDIR)$(LIBDIR)/
	install -m 755 $(BUILD)/$(SONAME) $(DESTDIR)$(LIBDIR)/
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/liblockstep.so
	cd include && find lockstep -name '*.h' -exec install -D -m 644 {} \
		$(DESTDIR)$(PREFIX)/include/{} \;
	install -m 644 $(BUILD)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 cmd/completion.bash $(DESTDIR)$(COMPLETIONS)/lockstep
	$(call pc_write,$(LIBDIR),$(PREFIX)/include,$(DESTDIR)$(LIBDIR)/pkgconfig/lockstep.pc)
# The system's linker reads its folders from a list, which it has to make anew.
	$(if $(DESTDIR),,$(if $(filter $(SEARCHED),$(LIBDIR)),ldconfig))
uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/bin/lockstep $(DESTDIR)$(LIBDIR)/liblockstep.* \
		$(DESTDIR)$(LIBDIR)/pkgconfig/lockstep.pc $(DESTDIR)$(PREFIX)/include/lockstep \
		$(DESTDIR)$(PREFIX)/share/man/man1/lockstep*.1 $(DESTDIR)$(COMPLETIONS)/lockstep

clean:
	rm -rf $(BUILD) $(BUILD)-fuzz $(BUILD)-coverage dist

help:
	@printf '%s\n' \
	'make              build/lockstep and the libraries' \
	'make check        install what is missing, build, run every test program: 5 minutes' \
	'make check-all    all that the tests can do: 40 minutes; check-MODULE: one module' \
	'                  CHANGED=1 SINCE=origin/main: what changed files reach; RECORD=1: weights' \
	'make check-pages  the commands of README and of every page under doc/' \
	'make nightly      check-all, sanitizers, fuzzing, coverage, busy machines: bench/nightly.md' \
	'make soak         MINUTES=60 SEED=1: a job with a fault a minute: same hash, 95 % of goodput' \
	'make faults-kills KILLS=1000 SEED=1: kill -9 of ranks, mpirun, launcher: same hash' \
	'make demo         install what is missing, build, train on a book, draw the loss' \
	'make invariance   N=120 SEED=1 STEPS=20: random layouts, one hash a recipe' \
	'make exhaustive   every layout of 1 to 4 ranks that small recipes admit: 20 minutes' \
	'make faults       COUNT=10000 SEED=1: bits of checkpoints flip, files are cut short: each is found' \
	'make interop      COUNT=3 SEED=1 PYTHON=: random models and texts, beside transformers' \
	'make what-fits    DEVICE=24: the largest model whose plan keeps within so many GiB' \
	'make tidy         layers, headers, lengths, format' \
	'make fuzz         SECONDS=60 for each parser, under ASan and UBSan' \
	'make report-shots draws pages of `lockstep report` in Chromium, and checks their width' \
	'make bench        products, kernels, collectives, pipelines, a training step, memory tiers, import and export' \
	'make bench-peers  beside PyTorch and llm.c: see bench/README.md' \
	'make bench-plan   published runs beside the planner: bench/RESULTS.md' \
	'make bench-layouts  layouts that run here beside the planner: bench/RESULTS.md' \
	'make bench-checkpoint  saving and loading beside plain files and PyTorch DCP: bench/RESULTS.md' \
	'make coverage     lines and branches that the tests reach; CHECK=all: that check-all reaches' \
	'make wheel        dist/lockstep-*.whl: the Python package with all that it needs' \
	'make install      PREFIX=/usr/local LIBDIR=PREFIX/lib DESTDIR=' \
	'Settings: CC=gcc|clang BUILD=build DEBUG=1 SANITIZE=address,undefined|thread WERROR=1 MPI=0 MPICC=mpicc V=1'

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
