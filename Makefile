# make            build/lockstep and the libraries (release)
# make help       every target

PREFIX   ?= /usr/local
BUILD    ?= build
CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
MPI      ?= $(shell command -v mpicc >/dev/null 2>&1 && echo 1 || echo 0)
SANITIZE ?=
DEBUG    ?= $(if $(SANITIZE),1,0)
WERROR   ?= 0
VERSION  := 0.1.0

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
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif

LIBS_PC  := libfyaml jansson libpcre2-8 libxxhash libzstd zlib hwloc
CFLAGS_BASE := -std=c11 -D_GNU_SOURCE -DLS_VERSION='"$(VERSION)"' -Iinclude -Isrc -fopenmp -pthread \
	-ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC -Wall -Wextra -Wvla \
	-Wmissing-prototypes $(shell pkg-config --cflags $(LIBS_PC) 2>/dev/null)
ifeq ($(WERROR),1)
CFLAGS_BASE += -Werror
endif
ifeq ($(DEBUG),1)
CFLAGS_BASE += -g -O1 -DLS_COMM_CHECK=1
else
CFLAGS_BASE += -g1 -O3 -DNDEBUG
endif
ifneq ($(SANITIZE),)
CFLAGS_BASE += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer
LDFLAGS_BASE := -fsanitize=$(SANITIZE)
endif
LDLIBS := $(shell pkg-config --libs $(LIBS_PC) 2>/dev/null) -ldnnl -lisal -lm -pthread -fopenmp
ifeq ($(MPI),1)
CFLAGS_BASE += -DLS_WITH_MPI=1 $(shell pkg-config --cflags ompi-c 2>/dev/null || pkg-config --cflags mpich 2>/dev/null)
LDLIBS += $(shell pkg-config --libs ompi-c 2>/dev/null || pkg-config --libs mpich 2>/dev/null)
endif
CFLAGS_ALL = $(CFLAGS_BASE) $(CFLAGS)

# src/ops/kern/*.c is compiled once per instruction set, with LS_KERNEL_ISA naming it.
KERNELS  := $(wildcard src/ops/kern/*.c)
SOURCES  := $(filter-out $(KERNELS),$(wildcard src/*/*.c))
ISAS     := plain
ifneq ($(filter x86_64,$(shell uname -m)),)
ISAS     += avx2 avx512
endif
ISA_FLAGS_plain  :=
ISA_FLAGS_avx2   := -mavx2 -mfma
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512
OBJECTS  := $(SOURCES:%.c=$(BUILD)/%.o) \
	$(foreach isa,$(ISAS),$(KERNELS:%.c=$(BUILD)/%.$(isa).o))
COMMANDS := $(wildcard cmd/*.c)
TESTS    := $(patsubst %.c,$(BUILD)/%,$(wildcard test/*/test_*.c))
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c))

.PHONY: all help
all: $(if $(COMMANDS),$(BUILD)/lockstep) $(BUILD)/liblockstep.a $(BUILD)/liblockstep.so

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@
# Files that hold intrinsics above the base instruction set name their flags in a line
# "/* cflags: ... */" near the top.
$(BUILD)/src/ops/%.o: src/ops/%.c
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CFLAGS_ALL) $(shell sed -n 's|^/\* cflags: \(.*\) \*/$$|\1|p' $<) -MMD -MP -c $< -o $@
define isa_rule
$(BUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	$$(call say,CC,$$@)
	$(Q)$(CC) $$(CFLAGS_ALL) $(ISA_FLAGS_$(1)) -DLS_KERNEL_ISA=$(1) -MMD -MP -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

$(BUILD)/liblockstep.a: $(OBJECTS)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)ar rcs $@ $(OBJECTS)
$(BUILD)/liblockstep.so: $(OBJECTS)
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,liblockstep.so.0 $(LDFLAGS_BASE) $(LDFLAGS) $(OBJECTS) $(LDLIBS) -o $@
$(BUILD)/lockstep: $(COMMANDS:%.c=$(BUILD)/%.o) $(BUILD)/liblockstep.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_BASE) $(LDFLAGS) $^ $(LDLIBS) -o $@

# Tests: one program per test/<module>/test_*.c, linked with cmocka. Other test/<module>/*.c files are
# shared helpers of that module's tests, test/support/*.c of all.
TEST_HELPERS = $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(wildcard test/*/test_*.c test/*/fuzz_*.c),\
	$(wildcard test/$(1)/*.c test/support/*.c)))
.SECONDEXPANSION:
$(TESTS): $(BUILD)/%: $(BUILD)/%.o $$(call TEST_HELPERS,$$(word 2,$$(subst /, ,$$*))) $(BUILD)/liblockstep.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_BASE) $(LDFLAGS) $^ -lcmocka $(LDLIBS) -o $@
# These run the program.
$(filter $(BUILD)/test/cmd/%,$(TESTS)): | $(BUILD)/lockstep
$(EXAMPLES): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/liblockstep.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_BASE) $(LDFLAGS) $^ $(LDLIBS) -o $@

.PHONY: tests examples unit clean
tests: $(TESTS)
examples: $(EXAMPLES)
unit: $(TESTS)
	@for test in $(TESTS); do echo "== $$test"; $$test || exit 1; done
clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
