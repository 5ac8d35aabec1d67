/* Which instruction sets this machine offers; names. */
#include <lockstep/ops.h>

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel gives the 8 KiB of tile state only to processes that ask for it (Linux 5.16, x86:
 * "Using XSTATE features in user space applications"). The permission is the process's: threads
 * that exist or come later share it, and asking twice is harmless. */
static bool amx_is_granted(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool amx_is_there(void)
{
    enum { EDX_AMX_BF16 = 1 << 22, EDX_AMX_TILE = 1 << 24 };
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return false;
    return (edx & EDX_AMX_BF16) && (edx & EDX_AMX_TILE);
}

static enum ls_isa isa_of_machine(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return LS_ISA_PLAIN;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return LS_ISA_AVX2;
    if (!__builtin_cpu_supports("avx512bf16"))
        return LS_ISA_AVX512;
    return amx_is_there() && amx_is_granted() ? LS_ISA_AMX : LS_ISA_AVX512_BF16;
}
#else
static enum ls_isa isa_of_machine(void)
{
    return LS_ISA_PLAIN;
}
#endif

static const char *const isa_names[LS_ISA_COUNT] = {"plain", "avx2", "avx512", "avx512_bf16",
                                                    "amx"};

const char *ls_isa_name(enum ls_isa isa)
{
    return isa_names[isa];
}

int ls_isa_of_name(const char *name)
{
    for (int isa = 0; isa < LS_ISA_COUNT; isa++)
        if (strcmp(name, isa_names[isa]) == 0)
            return isa;
    return -1;
}

static const char *const arithmetic_names[LS_ARITHMETIC_COUNT] = {"fma", "bf16_pairs"};

const char *ls_arithmetic_name(enum ls_arithmetic arithmetic)
{
    return arithmetic_names[arithmetic];
}

int ls_isa_limit(enum ls_isa *limit)
{
    const char *name = getenv(LS_ISA_VARIABLE);
    int isa = name && name[0] ? ls_isa_of_name(name) : LS_ISA_COUNT - 1;
    *limit = isa < 0 ? LS_ISA_PLAIN : (enum ls_isa)isa;
    return isa < 0 ? LS_EINVAL : LS_OK;
}

enum ls_isa ls_isa_best(void)
{
    enum ls_isa machine = isa_of_machine(), limit;
    ls_isa_limit(&limit);
    return limit < machine ? limit : machine;
}
