/* The hosts of a job: who they are, and which of them answer. */
#include "launch/launch_private.h"

#include <lockstep/base/file.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FILE_MAX = 16 << 20, SLOTS_MAX = 65536, PAUSE_MAX_S = 600, COMMAND_S = 30, TRY_MS = 5 };
enum { NAMES_BYTES = 1 << 20 };

/* ---- who they are ---------------------------------------------------------------------------- */

/* Whether the name is an IPv4 address of this machine. Names are not asked for: that may take long
 * for a list of many hosts. */
static bool is_own_address(const char *name)
{
    struct in_addr address;
    struct ifaddrs *own = NULL;
    if (inet_pton(AF_INET, name, &address) != 1)
        return false;
    bool found = ntohl(address.s_addr) >> 24 == 127;
    if (!found && getifaddrs(&own))
        return false;
    for (const struct ifaddrs *one = own; one && !found; one = one->ifa_next)
        found = one->ifa_addr && one->ifa_addr->sa_family == AF_INET &&
                ((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr.s_addr ==
                    address.s_addr;
    freeifaddrs(own);
    return found;
}

/* What mpirun needs no agent for. */
static bool is_here(const char *name)
{
    char self[LAUNCH_HOST_BYTES] = "";
    gethostname(self, sizeof self - 1);
    size_t domain = strcspn(self, ".");
    return !strcmp(name, self) || !strcmp(name, "localhost") ||
           (strlen(name) == domain && !strncmp(name, self, domain)) || is_own_address(name);
}

static int host_add(struct launch_hosts *hosts, const char *name, size_t length, int slots,
                    struct ls_error *error)
{
    struct launch_host *list = realloc(hosts->list, (size_t)(hosts->count + 1) * sizeof *list);
    if (!list)
        return ls_no_memory(error, "for %d hosts", hosts->count + 1);
    hosts->list = list;
    struct launch_host *host = &list[hosts->count++];
    *host = (struct launch_host){.slots = slots, .up = true};
    snprintf(host->name, sizeof host->name, "%.*s", (int)length, name);
    host->here = is_here(host->name);
    return LS_OK;
}

/* One line without its comment: "host slots=N". */
static int line_read(struct launch_hosts *hosts, const char *path, int number, char *line,
                     struct ls_error *error)
{
    char *save = NULL, *end = NULL;
    line[strcspn(line, "#\r")] = '\0';
    const char *name = strtok_r(line, " \t", &save), *slots = strtok_r(NULL, " \t", &save);
    const char *more = slots ? strtok_r(NULL, " \t", &save) : NULL;
    long count = 1;
    if (!name)
        return LS_OK;
    if (slots && !strncmp(slots, "slots=", 6))
        count = strtol(slots + 6, &end, 10);
    if (more || (slots && (!end || end == slots + 6 || *end)) || count < 1 || count > SLOTS_MAX)
        return ls_error_line(error, LS_ECONFIG, path, number,
                             "%s %s%s%s: expected HOST slots=N, with N from 1 to %d", name,
                             slots ? slots : "", more ? " " : "", more ? more : "", SLOTS_MAX);
    if (name[0] == '-' || strpbrk(name, ",:'\"`$;&|<>(){}*?\\") ||
        strlen(name) >= LAUNCH_HOST_BYTES)
        return ls_error_line(error, LS_ECONFIG, path, number, "%s: this is no name of a host",
                             name);
    for (int i = 0; i < hosts->count; i++)
        if (!strcmp(hosts->list[i].name, name))
            return ls_error_line(error, LS_ECONFIG, path, number,
                                 "host %s is already listed: give it one line, with all of its "
                                 "slots",
                                 name);
    return host_add(hosts, name, strlen(name), (int)count, error);
}

int launch_hosts_read(struct launch_hosts *hosts, const char *path, struct ls_error *error)
{
    char *text = NULL, *next;
    size_t bytes;
    int number = 0;
    int status = ls_file_read(path, FILE_MAX, LS_ECONFIG, &text, &bytes, error);
    hosts->kind = LAUNCH_HOSTFILE;
    for (char *line = text; line && !status; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        status = line_read(hosts, path, ++number, line, error);
    }
    free(text);
    if (!status && hosts->count == 0)
        status = ls_error_set(error, LS_ECONFIG,
                              "%s: it names no host: expected lines such as node1 slots=8", path);
    return status;
}

int launch_hosts_here(struct launch_hosts *hosts, int slots, struct ls_error *error)
{
    hosts->kind = LAUNCH_HERE;
    return host_add(hosts, "localhost", strlen("localhost"), slots, error);
}

/* SLURM_TASKS_PER_NODE: "4(x2),3" is 4, 4, 3. The slots of node i. */
static int slurm_slots(const char *text, int node)
{
    long slots = 1;
    while (text && *text) {
        char *end;
        long times = 1;
        slots = strtol(text, &end, 10);
        if (!strncmp(end, "(x", 2))
            times = strtol(end + 2, &end, 10);
        node -= (int)times;
        text = strchr(end, ',');
        text += text != NULL;
        if (node < 0)
            break;
    }
    return (int)ls_min(ls_max(slots, 1), SLOTS_MAX);
}

int launch_hosts_slurm(struct launch_hosts *hosts, struct ls_error *error)
{
    char *list = getenv("SLURM_JOB_NODELIST"), *names = malloc(NAMES_BYTES), *save = NULL;
    char *const argv[] = {"scontrol", "show", "hostnames", list, NULL};
    hosts->kind = LAUNCH_SLURM;
    if (!names)
        return ls_no_memory(error, "for the nodes of the allocation");
    int status = LS_OK, code = process_run(argv, NULL, names, NAMES_BYTES, COMMAND_S);
    if (code == PROCESS_FAILED)
        status = ls_error_errno(error, errno,
                                "cannot run scontrol, which names the nodes of the allocation");
    else if (code)
        status = ls_error_set(error, LS_ECONFIG,
                              "scontrol show hostnames %.200s failed (%d): this shell says that it "
                              "is inside a Slurm allocation (SLURM_JOB_NODELIST); outside of one, "
                              "unset it, or give --ranks or --hosts",
                              list, code);
    for (char *name = strtok_r(names, "\n", &save); name && !status;
         name = strtok_r(NULL, "\n", &save))
        status = host_add(hosts, name, strlen(name),
                          slurm_slots(getenv("SLURM_TASKS_PER_NODE"), hosts->count), error);
    free(names);
    return status;
}

int launch_hosts_slots(const struct launch_hosts *hosts, bool all)
{
    int slots = 0;
    for (int i = 0; i < hosts->count; i++)
        slots += all || hosts->list[i].up ? hosts->list[i].slots : 0;
    return slots;
}

int launch_hosts_most(const struct launch_hosts *hosts)
{
    int most = 1;
    for (int i = 0; i < hosts->count; i++)
        most = hosts->list[i].up && hosts->list[i].slots > most ? hosts->list[i].slots : most;
    return most;
}

void launch_hosts_use(struct launch_hosts *hosts, int64_t ranks)
{
    for (int i = 0; i < hosts->count; i++) {
        struct launch_host *host = &hosts->list[i];
        host->used = host->up && ranks > 0;
        ranks -= host->used ? ls_min(host->slots, ranks) : 0;
    }
}

bool launch_hosts_here_alone(const struct launch_hosts *hosts)
{
    bool alone = hosts->kind != LAUNCH_SLURM;
    for (int i = 0; i < hosts->count; i++)
        alone &= !hosts->list[i].used || hosts->list[i].here;
    return alone;
}

bool launch_hosts_text(const struct launch_hosts *hosts, int64_t ranks, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < hosts->count && ranks > 0; i++) {
        const struct launch_host *host = &hosts->list[i];
        if (!host->up)
            continue;
        int64_t slots = ls_min(host->slots, ranks);
        used += (size_t)snprintf(text + used, bytes - used, "%s%s:%ld", used ? "," : "", host->name,
                                 (long)slots);
        if (used >= bytes) {
            memcpy(text + bytes - sizeof "...", "...", sizeof "...");
            return false;
        }
        ranks -= slots;
    }
    return true;
}

/* ---- which of them answer -------------------------------------------------------------------- */

const char *launch_hosts_agent(void)
{
    static const char *const names[] = {"OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) && *getenv(names[i]))
            return getenv(names[i]);
    return "ssh -o BatchMode=yes -o ConnectTimeout=10";
}

/* `agent` may be several words; the host's name has no character that a shell reads. */
static void agent_line(const char *name, const char *words, char *line, size_t bytes)
{
    snprintf(line, bytes, "exec %s %s %s", launch_hosts_agent(), name, words);
}

/* Both without their domains; an address has none. */
static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(a, ".");
    return length == strcspn(b, ".") && !strncmp(a, b, length) && strspn(a, "0123456789") < length;
}

struct launch_host *launch_hosts_named(const struct launch_hosts *hosts, const char *name)
{
    struct launch_host *like = NULL;
    for (int i = 0; i < hosts->count; i++) {
        struct launch_host *host = &hosts->list[i];
        if (host->used && (!strcmp(host->name, name) || (!like && same_name(host->name, name))))
            like = host;
    }
    return like;
}

int launch_hosts_run(const struct launch_hosts *hosts, const char *name, const char *words)
{
    char line[1024];
    char *const argv[] = {"sh", "-c", line, NULL};
    const struct launch_host *like = launch_hosts_named(hosts, name);
    for (int i = 0; i < hosts->count && !like; i++)
        like = hosts->list[i].used ? &hosts->list[i] : NULL;
    name = like ? like->name : name;
    if (hosts->kind == LAUNCH_SLURM)
        snprintf(line, sizeof line,
                 "exec srun --overlap --overcommit --mpi=none --nodes=1 -n 1 --nodelist=%s %s",
                 name, words);
    else
        agent_line(name, words, line, sizeof line);
    return process_run(argv, NULL, NULL, 0, hosts->limit_s);
}

/* A state that ends in * does not respond. */
static bool state_answers(const char *state)
{
    static const char *const bad[] = {"down", "fail", "drained", "error", "unknown", "power"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!strncmp(state, bad[i], strlen(bad[i])))
            return false;
    return state[0] && state[strlen(state) - 1] != '*';
}

/* The nodes that the allocation has now, as sinfo takes them: one that was down is no more of it,
 * even if it is up again. False: Slurm does not say. text[NAMES_BYTES] is for what it prints. */
static bool slurm_nodes(char *text, char nodes[NAMES_BYTES])
{
    const char *job = getenv("SLURM_JOB_ID");
    char *const argv[] = {"squeue", "--noheader", "--jobs", (char *)job, "--format=%A %N", NULL};
    char *save = NULL;
    if (!job || process_run(argv, NULL, text, NAMES_BYTES, COMMAND_S))
        return false;
    /* Of a job array all tasks are listed. */
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        size_t length = strlen(job);
        if (!strncmp(line, job, length) && line[length] == ' ' && line[length + 1])
            return snprintf(nodes, NAMES_BYTES, "--nodes=%s", line + length + 1) < NAMES_BYTES;
    }
    return false;
}

/* Slurm knows of its nodes, and tells of all at once. */
static void slurm_answers(const struct launch_hosts *hosts)
{
    char *text = malloc(NAMES_BYTES), *nodes = malloc(NAMES_BYTES), *save = NULL;
    char *const argv[] = {"sinfo", "--noheader", "--Node", nodes, "--format=%N %T", NULL};
    bool known = text && nodes && slurm_nodes(text, nodes) &&
                 !process_run(argv, NULL, text, NAMES_BYTES, COMMAND_S);
    /* If its controller does not answer, nothing new is known of the nodes. */
    for (int i = 0; i < hosts->count; i++)
        hosts->list[i].answers = !known && hosts->list[i].up;
    for (char *line = known ? strtok_r(text, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save)) {
        char name[LAUNCH_HOST_BYTES], state[64];
        if (sscanf(line, "%255s %63s", name, state) != 2)
            continue;
        for (int i = 0; i < hosts->count; i++)
            if (!strcmp(hosts->list[i].name, name))
                hosts->list[i].answers = state_answers(state);
    }
    free(text);
    free(nodes);
}

static pid_t try_start(const struct launch_host *host)
{
    char line[1024];
    pid_t child = fork();
    if (child != 0)
        return child;
    process_clean();
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        dup2(nothing, fd);
    agent_line(host->name, "true", line, sizeof line);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

static void try_begin(const struct launch_hosts *hosts, struct launch_host *host)
{
    host->until_s = ls_now_s() + hosts->limit_s;
    host->trying = !host->here && hosts->kind == LAUNCH_HOSTFILE ? try_start(host) : -1;
    /* One that this machine has no process to ask with stays as it is. */
    host->answers = host->here || (host->trying < 0 && host->up);
}

static void try_kill(struct launch_host *host)
{
    kill(-host->trying, SIGKILL);
    kill(host->trying, SIGKILL);
    waitpid(host->trying, NULL, 0);
}

/* Whether it is over. The host answers if it ended well, and in time. */
static bool try_over(struct launch_host *host)
{
    int status = 0;
    pid_t got = host->trying > 0 ? waitpid(host->trying, &status, WNOHANG) : -1;
    if (got == 0 && ls_now_s() < host->until_s)
        return false;
    if (got == 0)
        try_kill(host);
    host->answers |= got > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    host->trying = 0;
    return true;
}

void launch_hosts_leave(struct launch_host *host)
{
    host->up = false;
    host->pause_s = PAUSE_MAX_S;
    host->again_s = ls_now_s() + host->pause_s;
}

/* Pauses grow while a host goes and comes; one that was up for the longest of them begins anew. */
static void host_judge(const struct launch_hosts *hosts, struct launch_host *host)
{
    double now_s = ls_now_s();
    bool answers = host->answers;
    if (host->up && !answers && now_s - host->back_s > PAUSE_MAX_S)
        host->pause_s = 0;
    if (!host->up && answers)
        host->back_s = now_s;
    if (!answers) {
        host->pause_s = host->pause_s > 0 ? ls_min(2 * (int64_t)host->pause_s + 1, PAUSE_MAX_S)
                                          : hosts->pause_s;
        host->again_s = now_s + host->pause_s;
    }
    host->up = answers;
}

static bool is_due(const struct launch_host *host, bool down)
{
    return down ? !host->up && ls_now_s() >= host->again_s : host->up;
}

/* What its try came to. Whether that matters: of one that was up, if it holds ranks. */
static bool answer_take(const struct launch_hosts *hosts, struct launch_host *host, bool *changed)
{
    bool was = host->up;
    host_judge(hosts, host);
    *changed = was != host->up;
    return *changed && (!was || host->used);
}

bool launch_hosts_try(struct launch_hosts *hosts, bool down, bool *changed)
{
    bool any = false, asks = false; /* asks: of Slurm */
    for (int i = 0; i < hosts->count; i++) {
        struct launch_host *host = &hosts->list[i];
        host->tried = is_due(host, down);
        asks |= host->tried && hosts->kind == LAUNCH_SLURM;
        if (host->tried && !host->trying)
            try_begin(hosts, host);
    }
    if (asks)
        slurm_answers(hosts);
    for (int i = 0; i < hosts->count; i++) {
        struct launch_host *host = &hosts->list[i];
        while (host->tried && !try_over(host))
            nanosleep(&(struct timespec){.tv_nsec = TRY_MS * 1000000L}, NULL);
        any |= host->tried && answer_take(hosts, host, &changed[i]);
    }
    return any;
}

bool launch_hosts_look(struct launch_hosts *hosts, bool *changed)
{
    bool any = false;
    if (hosts->kind == LAUNCH_SLURM)
        return launch_hosts_try(hosts, true, changed);
    for (int i = 0; i < hosts->count; i++) {
        struct launch_host *host = &hosts->list[i];
        if (!host->trying && is_due(host, true))
            try_begin(hosts, host);
        if (!host->trying || !try_over(host))
            continue;
        bool again = host->twice && !host->answers;
        host->twice = false;
        if (again)
            try_begin(hosts, host);
        else
            any |= answer_take(hosts, host, &changed[i]);
    }
    for (int i = 0; i < hosts->count && any; i++) {
        struct launch_host *host = &hosts->list[i];
        bool lost = !host->up && host->pause_s < PAUSE_MAX_S;
        host->twice = lost && host->trying;
        if (lost && !host->trying)
            try_begin(hosts, host);
    }
    return any;
}

bool launch_hosts_trying(const struct launch_hosts *hosts)
{
    bool any = false;
    for (int i = 0; i < hosts->count; i++)
        any |= hosts->list[i].trying != 0;
    return any;
}

void launch_hosts_forget(struct launch_hosts *hosts)
{
    for (int i = 0; i < hosts->count; i++) {
        hosts->list[i].trying = 0;
        hosts->list[i].twice = false;
    }
}

void launch_hosts_release(struct launch_hosts *hosts)
{
    for (int i = 0; i < hosts->count; i++)
        if (hosts->list[i].trying > 0)
            try_kill(&hosts->list[i]);
    free(hosts->list);
    *hosts = (struct launch_hosts){0};
}
