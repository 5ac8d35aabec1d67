/* lockstep doctor: what this machine offers, what is missing, and how to get it. */
#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/base/formatted.h>
#include <lockstep/base/version.h>
#include <lockstep/base/words.h>
#include <lockstep/device.h>
#include <lockstep/device/tier.h>
#include <lockstep/net.h>
#include <lockstep/ops.h>
#include <lockstep/train/peak.h>

#include <hwloc.h>
#include <isa-l.h>
#include <jansson.h>
#include <libfyaml.h>
#include <omp.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>
#ifdef LS_WITH_MPI
#include <mpi.h>
#endif

/* What was found missing. problems keep training from running; advice only costs speed or a
 * feature. */
struct doctor {
    int problems, advice;
};

/* "  name              value" */
__attribute__((format(printf, 2, 3))) static void doctor_row(const char *name, const char *format,
                                                             ...)
{
    char value[2048];
    LS_FORMAT(value, format);
    cmd_print("  %-22s %s\n", name, value);
}

/* A row that begins with an exclamation mark, and counts. remedy is a command or an advice. */
static void doctor_problem(struct doctor *doctor, const char *what, const char *remedy)
{
    doctor->problems++;
    cmd_print("  ! %s\n      to fix: %s\n", what, remedy);
}

static void doctor_advice(struct doctor *doctor, const char *what, const char *remedy)
{
    doctor->advice++;
    cmd_print("  ~ %s\n      to improve: %s\n", what, remedy);
}

/* The first line of a file, without its end. */
static bool file_line(const char *path, char *value, size_t bytes)
{
    if (!ls_file_head(path, value, bytes))
        return false;
    value[strcspn(value, "\n")] = '\0';
    return true;
}

/* ---- the processor -------------------------------------------------------------------------- */

#if defined(__aarch64__)
enum { PLAIN_IS_NEON = 1 };
#else
enum { PLAIN_IS_NEON = 0 };
#endif

static void print_computing(void)
{
    enum ls_isa best = ls_isa_best();
    char text[128] = "";
    for (int isa = LS_ISA_PLAIN; isa <= (int)best; isa++)
        ls_string_add(text, sizeof text, ", ", "%s", ls_isa_name((enum ls_isa)isa));
    doctor_row("instruction sets", "%s", text);
    enum ls_arithmetic fastest = ls_arithmetic_fastest(best, LS_BF16);
    doctor_row("bf16 here", "numerics.arithmetic: auto takes %s, numerics.isa: auto takes %s",
               ls_arithmetic_name(fastest), ls_isa_name(ls_isa_fastest(best, fastest, LS_BF16)));
}

static void print_caches(hwloc_topology_t topology)
{
    static const struct {
        hwloc_obj_type_t type;
        const char *name;
    } levels[] = {{HWLOC_OBJ_L1CACHE, "L1 data cache"},
                  {HWLOC_OBJ_L2CACHE, "L2 cache"},
                  {HWLOC_OBJ_L3CACHE, "L3 cache"}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        hwloc_obj_t cache = hwloc_get_obj_by_type(topology, levels[i].type, 0);
        if (!cache || !cache->attr)
            continue;
        doctor_row(levels[i].name, "%d x %s", hwloc_get_nbobjs_by_type(topology, levels[i].type),
                   ls_bytes((double)cache->attr->cache.size).text);
    }
}

/* The CPU time that a control group grants, in cores; 0 if there is no bound. */
static double quota_cores(void)
{
    char line[128];
    double quota = 0, period = 0;
    if (file_line("/sys/fs/cgroup/cpu.max", line, sizeof line))
        return sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0 ? quota / period : 0;
    if (!file_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof line))
        return 0;
    quota = atof(line);
    if (quota <= 0 || !file_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", line, sizeof line))
        return 0;
    period = atof(line);
    return period > 0 ? quota / period : 0;
}

static void doctor_processor(struct doctor *doctor)
{
    puts("\nProcessor");
    char model[256];
    if (ls_device_processor(model, sizeof model))
        doctor_row("model", "%s", model);
    print_computing();
    if (ls_isa_best() == LS_ISA_PLAIN && !PLAIN_IS_NEON)
        doctor_advice(doctor, "no AVX2: kernels run in portable C",
                      "use an x86-64 machine with AVX2 or better");
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return;
    if (hwloc_topology_load(topology) == 0) {
        hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology);
        doctor_row("cores", "%d in %d package(s), %d hardware thread(s), %d usable here",
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU), hwloc_bitmap_weight(allowed));
        doctor_row("NUMA nodes", "%d", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE));
        print_caches(topology);
    }
    hwloc_topology_destroy(topology);
    double quota = quota_cores();
    if (quota > 0)
        doctor_row("control group", "at most %.1f cores of CPU time", quota);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void print_limit(const char *name, int resource, bool bytes)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        doctor_row(name, "unlimited");
    else if (bytes)
        doctor_row(name, "%s", ls_bytes((double)limit.rlim_cur).text);
    else
        doctor_row(name, "%llu", (unsigned long long)limit.rlim_cur);
}

static void check_available(struct doctor *doctor, int64_t available)
{
    enum { NEEDED = 512 << 20 };
    struct rlimit space;
    if (available > 0 && available < NEEDED)
        doctor_problem(doctor, "less than 512 MiB of memory is free",
                       "end other programs, or raise the control group's bound");
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        space.rlim_cur < (rlim_t)NEEDED * 4)
        doctor_problem(doctor, "the address space is limited to less than 2 GiB",
                       "ulimit -v unlimited");
    if (getrlimit(RLIMIT_NOFILE, &space) == 0 && space.rlim_cur < 256)
        doctor_problem(doctor, "fewer than 256 files may be open at once", "ulimit -n 1024");
}

static void doctor_memory(struct doctor *doctor)
{
    puts("\nMemory");
    struct ls_device_memory memory = ls_device_memory();
    doctor_row("installed", "%s, %s free", ls_bytes((double)memory.installed).text,
               ls_bytes((double)memory.available).text);
    if (memory.group > 0)
        doctor_row("control group", "at most %s", ls_bytes((double)memory.group).text);
    print_limit("address space (-v)", RLIMIT_AS, true);
    print_limit("locked memory (-l)", RLIMIT_MEMLOCK, true);
    print_limit("open files (-n)", RLIMIT_NOFILE, false);
    struct statvfs shared;
    if (statvfs("/dev/shm", &shared) == 0)
        doctor_row("/dev/shm", "%s free",
                   ls_bytes((double)shared.f_bavail * (double)shared.f_frsize).text);
    char huge[128];
    if (file_line("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge)) {
        doctor_row("huge pages", "%s", huge);
        if (strstr(huge, "[never]"))
            doctor_advice(doctor, "huge pages are off: large buffers cost more address translation",
                          "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    }
    check_available(doctor, memory.free);
}

/* ---- the libraries and MPI ------------------------------------------------------------------- */

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

static void doctor_libraries(struct doctor *doctor)
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

/* Runs matrix products: what training stands on must work, and this is how fast it goes. A rate
 * that is given is not measured, as in runs. */
static void doctor_speed(struct doctor *doctor)
{
    puts("\nSpeed (one large matrix product, all threads)");
    struct ls_ops ops;
    struct ls_error error = {0};
    double given;
    int status = ls_peak_given(&given, &error);
    if (status || given > 0) {
        if (status)
            doctor_problem(doctor, error.text, "unset LOCKSTEP_PEAK_FLOPS");
        else
            doctor_row("not measured", "%.0f GFLOP/s by LOCKSTEP_PEAK_FLOPS", given / 1e9);
        return;
    }
    status = ls_ops_init(&ops, omp_get_max_threads(), ls_isa_best(), &error);
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
            doctor_problem(doctor, error.text,
                           status == LS_ENOTSUP ? "install libdnnl2" : "unset ONEDNN_* variables");
        else
            doctor_row(dtypes[i] == LS_F32 ? "fp32" : "bf16", "%.0f GFLOP/s", rate / 1e9);
    }
    ls_ops_release(&ops);
}

#ifdef LS_WITH_MPI
/* Where PATH finds a program; false if it does not. */
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

/* MPICH and its like say other things. */
static bool is_open_mpi(const char *launcher)
{
    char command[544], says[256] = "";
    snprintf(command, sizeof command, "'%s' --version 2>/dev/null", launcher);
    FILE *out = popen(command, "r");
    bool is = out && fgets(says, sizeof says, out) && strstr(says, "Open MPI");
    if (out)
        pclose(out);
    return is;
}
#endif

static void doctor_mpi(struct doctor *doctor)
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
    else if (is_open_mpi(path) != !!strstr(version, "Open MPI"))
        doctor_advice(
            doctor, "this mpirun is not of that library: its processes do not see each other",
            "put the mpirun of that MPI first in PATH, or build with make MPICC=the mpicc "
            "of the other");
    if (find_program("srun", path, sizeof path))
        doctor_row("srun", "%s", path);
#else
    doctor_row("library", "none in this build");
    doctor_advice(doctor, "built without MPI: ranks can only be threads",
                  "sudo apt-get install libopenmpi-dev openmpi-bin, then build again");
#endif
}

/* ---- the command ----------------------------------------------------------------------------- */

int cmd_doctor(const struct cmd_args *args, struct ls_error *error)
{
    (void)args, (void)error;
    struct doctor doctor = {0};
    cmd_progress_begin(); /* of the products that it measures */
    printf("lockstep %s (commit %s, numerics.version %d)\n", ls_version(), ls_commit(),
           LS_NUMERICS_VERSION);
    doctor_processor(&doctor);
    doctor_memory(&doctor);
    doctor_libraries(&doctor);
    doctor_speed(&doctor);
    doctor_mpi(&doctor);
    if (doctor.problems) {
        printf("\nTraining cannot run here: %d problem%s (marked !).\n", doctor.problems,
               doctor.problems > 1 ? "s" : "");
        return ls_exit_code(LS_ENOTSUP);
    }
    printf("\nTraining can run here%s\n",
           doctor.advice ? "; what is marked ~ would make it better." : ".");
    return 0;
}
