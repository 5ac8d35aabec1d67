/* The libraries and MPI. */
#include "cmd.h"
#include "doctor.h"

#include <lockstep/device/tier.h>
#include <lockstep/net.h>
#include <lockstep/ops.h>

#include <hwloc.h>
#include <isa-l.h>
#include <jansson.h>
#include <libfyaml.h>
#include <omp.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>
#ifdef LS_WITH_MPI
#include <mpi.h>
#endif

/* PCRE2 is used with Unicode properties; a build without them cannot run the tokenizers. */
static void check_pcre2(struct doctor *doctor)
{
    char version[64] = "";
    uint32_t unicode = 0, jit = 0;
    pcre2_config(PCRE2_CONFIG_VERSION, version);
    pcre2_config(PCRE2_CONFIG_UNICODE, &unicode);
    pcre2_config(PCRE2_CONFIG_JIT, &jit);
    doctor_row("PCRE2", "%s%s (tokenizers)", version, jit ? "" : ", no JIT");
    if (!unicode)
        doctor_problem(doctor, "PCRE2 was built without Unicode",
                       "apt-get install --reinstall libpcre2-8-0");
    doctor_row("utf8proc", "%s, Unicode %s (tokenizers)", utf8proc_version(),
               utf8proc_unicode_version());
}

static void show_io_uring(void)
{
    struct ls_error why = {0};
    if (ls_io_uring_allowed(&why))
        doctor_row("io_uring", "allowed (files of memory tiers)");
    else
        doctor_row("io_uring", "not allowed: threads take its place (files of memory tiers): %s",
                   why.text);
}

void doctor_libraries(struct doctor *doctor)
{
    puts("\nLibraries");
    doctor_row("yardstick", "%s", ls_gemm_library());
    doctor_row("OpenMP", "%d, at most %d threads (threads of a rank)", _OPENMP,
               omp_get_max_threads());
    unsigned hwloc = hwloc_get_api_version();
    doctor_row("hwloc", "interface %u.%u (topology)", hwloc >> 16, hwloc >> 8 & 0xff);
    doctor_row("libfyaml", "%s (configuration)", fy_library_version());
    doctor_row("jansson", "%s (JSON)", jansson_version_str());
    check_pcre2(doctor);
    unsigned xxhash = XXH_versionNumber();
    doctor_row("xxHash", "%u.%u.%u (state hash)", xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
    doctor_row("ISA-L", "%d.%d.%d (checksums)", ISAL_MAJOR_VERSION, ISAL_MINOR_VERSION,
               ISAL_PATCH_VERSION);
    doctor_row("zstd", "%s (compressed corpora)", ZSTD_versionString());
    doctor_row("zlib", "%s (compressed corpora)", zlibVersion());
    char curl[128];
    if (ls_net_library(curl, sizeof curl))
        doctor_row("libcurl", "%s (data on the web and in S3, copies of checkpoints in S3)", curl);
    else
        doctor_row("libcurl",
                   "missing: no data from the web or S3, no copies in S3; install libcurl3-gnutls");
    show_io_uring();
}

void doctor_speed(struct doctor *doctor)
{
    puts("\nSpeed (one large matrix product, all threads)");
    struct ls_ops ops;
    struct ls_error error = {0};
    int status = ls_ops_init(&ops, omp_get_max_threads(), ls_isa_best(), &error);
    if (status) {
        doctor_problem(doctor, error.text, "free some memory, or use another machine");
        return;
    }
    static const enum ls_dtype dtypes[] = {LS_F32, LS_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        double rate = 0;
        ops.arithmetic = ls_arithmetic_fastest(ops.isa, dtypes[i]);
        status = ls_gemm_peak(&ops, dtypes[i], &rate, &error);
        if (status)
            doctor_problem(doctor, error.text, "unset ONEDNN_* variables; see the oneDNN manual");
        else
            doctor_row(dtypes[i] == LS_F32 ? "fp32" : "bf16", "%.0f GFLOP/s", rate / 1e9);
    }
    ls_ops_release(&ops);
}

#ifdef LS_WITH_MPI
/* Where PATH finds a program; false where it does not. */
static bool find_program(const char *name, char *path, size_t bytes)
{
    const char *folders = getenv("PATH");
    while (folders && *folders) {
        int length = (int)strcspn(folders, ":");
        snprintf(path, bytes, "%.*s/%s", length, folders, name);
        if (access(path, X_OK) == 0)
            return true;
        folders += length + (folders[length] == ':');
    }
    return false;
}
#endif

void doctor_mpi(struct doctor *doctor)
{
    puts("\nMPI (processes and clusters; ranks as threads need none)");
#ifdef LS_WITH_MPI
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    doctor_row("library", "%s", version);
    char path[512];
    bool launcher = find_program("mpirun", path, sizeof path);
    doctor_row("mpirun", "%s", launcher ? path : "not found");
    if (!launcher)
        doctor_advice(doctor, "no mpirun: ranks can only be threads",
                      "sudo apt-get install openmpi-bin");
    if (find_program("srun", path, sizeof path))
        doctor_row("srun", "%s", path);
#else
    doctor_row("library", "none in this build");
    doctor_advice(doctor, "built without MPI: ranks can only be threads",
                  "sudo apt-get install libopenmpi-dev openmpi-bin, then build again");
#endif
}
