/* Asks ranks of other machines where they are, over UDP, and answers them. */
#include "comm/inquire.h"

#include <lockstep/base/helper_thread.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    COPIES = 64, /* ranks that a process may ask in its life */
    ENTRIES = 6, /* of an answer: it fits in one packet */
    BESIDE = 3,  /* neighbours that are asked too */
    QUERY = 0x4c535131,
    ANSWER = 0x4c534131,
};

struct query {
    unsigned char token[INQUIRE_TOKEN];
    uint32_t kind;
    int32_t rank;
    uint64_t group;
    double sent_s; /* on the clock of who asks */
};

/* Times of the entries, and progress_s, are seconds ago; reads_s too, 0 if it does not read. */
struct answer {
    unsigned char token[INQUIRE_TOKEN];
    uint32_t kind;
    int32_t rank;
    double sent_s; /* of the query */
    double progress_s, reads_s;
    uint64_t count, read_bytes;
    int32_t pid, process, entries, awaits; /* awaits: the rank that it waits for, or -1 */
    int32_t left;                          /* as in a record */
    struct flight_picked entry[ENTRIES];
};
_Static_assert(sizeof(struct answer) <= 1400, "an answer is one packet");

struct inquirer {
    int socket, stop[2];
    bool runs;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows, and of copies in the board */
    struct flight_board *board;
    int rank, copies_used;
    unsigned char token[INQUIRE_TOKEN];
    struct inquire_peer *peers;
    struct flight_record *copies; /* [COPIES] */
    struct asked {
        double first_s, last_s; /* since when it does not answer; when it was asked last */
        double answered_s;      /* when the last query was sent that it answered */
    } * asked;                  /* [board->count] */
};

/* ---- opening --------------------------------------------------------------------------------- */

static void addresses_find(struct inquire_peer *own)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list))
        return;
    for (const struct ifaddrs *at = list; at && own->addresses < INQUIRE_ADDRESSES;
         at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || !(at->ifa_flags & IFF_UP) ||
            (at->ifa_flags & IFF_LOOPBACK))
            continue;
        struct sockaddr_in address;
        memcpy(&address, at->ifa_addr, sizeof address);
        own->address[own->addresses++] = address.sin_addr.s_addr;
    }
    freeifaddrs(list);
}

struct inquirer *inquire_open(struct inquire_peer *own)
{
    struct inquirer *q = calloc(1, sizeof *q);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t length = sizeof any;
    *own = (struct inquire_peer){0};
    gethostname(own->host, sizeof own->host - 1);
    addresses_find(own);
    if (!q || !own->addresses) {
        free(q);
        return NULL;
    }
    q->stop[0] = q->stop[1] = -1;
    q->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (q->socket < 0 || bind(q->socket, (struct sockaddr *)&any, sizeof any) ||
        getsockname(q->socket, (struct sockaddr *)&any, &length)) {
        if (q->socket >= 0)
            close(q->socket);
        free(q);
        return NULL;
    }
    own->port = any.sin_port;
    pthread_mutex_init(&q->lock, NULL);
    return q;
}

/* ---- answering ------------------------------------------------------------------------------- */

static bool is_beside(const struct inquirer *q, int rank)
{
    return q->peers[rank].machine == q->peers[q->rank].machine;
}

static void answer_send(const struct inquirer *q, const struct query *query,
                        const struct sockaddr_in *to)
{
    struct answer answer = {.kind = ANSWER, .rank = query->rank, .sent_s = query->sent_s};
    struct flight_record *record = q->board->records[query->rank];
    struct flight_entry at = {0};
    double now_s = ls_now_s();
    memcpy(answer.token, q->token, sizeof answer.token);
    answer.progress_s = now_s - ls_progress_s(&record->progress);
    double reads_since_s = ls_progress_reading(&record->progress, &answer.read_bytes);
    answer.reads_s = reads_since_s > 0 ? now_s - reads_since_s : 0;
    answer.count = atomic_load(&record->count);
    answer.pid = atomic_load(&record->pid);
    answer.process = (int32_t)flight_process_of(record);
    answer.awaits = flight_waits_for(q->board, query->rank, &at);
    answer.left = atomic_load(&record->left);
    answer.entries = flight_pick(record, query->group, answer.entry, ENTRIES);
    for (int i = 0; i < answer.entries; i++) {
        answer.entry[i].entry.started_s = now_s - answer.entry[i].entry.started_s;
        answer.entry[i].entry.changed_s = now_s - answer.entry[i].entry.changed_s;
    }
    sendto(q->socket, &answer, sizeof answer, 0, (const struct sockaddr *)to, sizeof *to);
}

static bool answer_valid(const struct inquirer *q, struct answer *answer)
{
    bool valid = answer->entries >= 0 && answer->entries <= ENTRIES &&
                 answer->process >= FLIGHT_RUNS && answer->process <= FLIGHT_ENDED &&
                 answer->awaits >= -1 && answer->awaits < q->board->count && answer->left >= 0 &&
                 answer->left <= q->board->count && answer->progress_s >= 0 && answer->reads_s >= 0;
    for (int i = 0; valid && i < answer->entries; i++)
        valid = answer->entry[i].index < answer->count &&
                flight_entry_valid(&answer->entry[i].entry, q->board->count);
    return valid;
}

/* Times are counted from the sending of the query: not later than they were. */
static void answer_take(struct inquirer *q, struct answer *answer)
{
    struct asked *asked = &q->asked[answer->rank];
    struct flight_record *copy = q->board->records[answer->rank];
    bool timely = answer->sent_s <= asked->last_s && answer->sent_s >= asked->answered_s;
    if (is_beside(q, answer->rank) || !copy || !timely || !answer_valid(q, answer))
        return;
    asked->answered_s = answer->sent_s;
    asked->first_s = asked->last_s > answer->sent_s ? asked->last_s : 0;
    for (int i = 0; i < answer->entries; i++) {
        answer->entry[i].entry.started_s = answer->sent_s - answer->entry[i].entry.started_s;
        answer->entry[i].entry.changed_s = answer->sent_s - answer->entry[i].entry.changed_s;
        flight_write(copy, answer->entry[i].index, &answer->entry[i].entry);
    }
    atomic_store(&copy->pid, answer->pid);
    atomic_store(&copy->awaits, 1 + answer->awaits);
    atomic_store(&copy->left, answer->left);
    atomic_store(&copy->told, 1 + answer->process);
    atomic_store(&copy->count, answer->count);
    ls_progress_set(&copy->progress, answer->sent_s - answer->progress_s);
    ls_progress_reading_set(&copy->progress,
                            answer->reads_s > 0 ? answer->sent_s - answer->reads_s : 0,
                            answer->read_bytes);
}

static void message_take(struct inquirer *q)
{
    union {
        struct query query;
        struct answer answer;
        char bytes[sizeof(struct answer) + 1];
    } message;
    struct sockaddr_in from = {0};
    socklen_t length = sizeof from;
    ssize_t got =
        recvfrom(q->socket, &message, sizeof message.bytes, 0, (struct sockaddr *)&from, &length);
    /* Both kinds begin alike. */
    if (got < (ssize_t)sizeof message.query || from.sin_family != AF_INET ||
        memcmp(message.query.token, q->token, sizeof q->token) != 0 || message.query.rank < 0 ||
        message.query.rank >= q->board->count)
        return;
    pthread_mutex_lock(&q->lock);
    if (message.query.kind == QUERY && got == sizeof message.query &&
        is_beside(q, message.query.rank))
        answer_send(q, &message.query, &from);
    else if (message.query.kind == ANSWER && got == sizeof message.answer)
        answer_take(q, &message.answer);
    pthread_mutex_unlock(&q->lock);
}

static void *answer_main(void *argument)
{
    struct inquirer *q = argument;
    struct pollfd watched[2] = {{.fd = q->socket, .events = POLLIN},
                                {.fd = q->stop[0], .events = POLLIN}};
    for (;;) {
        int found = poll(watched, 2, -1);
        if (found < 0 && errno != EINTR)
            return NULL;
        if (found > 0 && watched[1].revents)
            return NULL;
        if (found > 0)
            message_take(q);
    }
}

bool inquire_start(struct inquirer *q, struct flight_board *board, int rank,
                   struct inquire_peer *peers, const unsigned char token[INQUIRE_TOKEN])
{
    struct flight_record *copies = calloc(COPIES, sizeof *copies);
    struct asked *asked = calloc((size_t)board->count, sizeof *asked);
    if (!copies || !asked || pipe2(q->stop, O_CLOEXEC)) {
        free(copies);
        free(asked);
        return false;
    }
    q->board = board;
    q->rank = rank;
    q->peers = peers;
    q->copies = copies;
    q->asked = asked;
    memcpy(q->token, token, sizeof q->token);
    q->runs = ls_helper_start(&q->thread, answer_main, q) == 0;
    if (!q->runs)
        q->peers = NULL;
    return q->runs;
}

void inquire_close(struct inquirer *q)
{
    if (!q)
        return;
    if (q->stop[1] >= 0)
        close(q->stop[1]);
    if (q->runs) {
        pthread_join(q->thread, NULL);
        for (int r = 0; r < q->board->count; r++)
            if (!is_beside(q, r))
                q->board->records[r] = NULL;
    }
    if (q->stop[0] >= 0)
        close(q->stop[0]);
    close(q->socket);
    pthread_mutex_destroy(&q->lock);
    free(q->peers);
    free(q->copies);
    free(q->asked);
    free(q);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void query_send(const struct inquirer *q, const struct query *query, int to)
{
    const struct inquire_peer *peer = &q->peers[to];
    for (int i = 0; peer->port && i < peer->addresses && i < INQUIRE_ADDRESSES; i++) {
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_port = peer->port, .sin_addr.s_addr = peer->address[i]};
        sendto(q->socket, query, sizeof *query, 0, (struct sockaddr *)&address, sizeof address);
    }
}

void inquire_ask(struct inquirer *q, int rank, uint64_t group, double interval_s)
{
    struct asked *asked = &q->asked[rank];
    double now_s = ls_now_s();
    if (is_beside(q, rank) || now_s - asked->last_s < interval_s)
        return;
    pthread_mutex_lock(&q->lock);
    if (!q->board->records[rank] && q->copies_used < COPIES)
        q->board->records[rank] = &q->copies[q->copies_used++];
    bool asks = q->board->records[rank] != NULL;
    /* A while in which nobody asked is no silence. */
    if (asks && asked->first_s <= 0)
        asked->first_s = now_s;
    else if (asks)
        asked->first_s += fmax(now_s - asked->last_s - 4 * interval_s, 0);
    asked->last_s = now_s;
    pthread_mutex_unlock(&q->lock);
    struct query query = {.kind = QUERY, .rank = rank, .group = group, .sent_s = now_s};
    memcpy(query.token, q->token, sizeof query.token);
    if (!asks)
        return;
    query_send(q, &query, rank);
    for (int r = q->peers[rank].machine, beside = 0; r < q->board->count && beside < BESIDE; r++) {
        if (r == rank || q->peers[r].machine != q->peers[rank].machine)
            continue;
        query_send(q, &query, r);
        beside++;
    }
}

double inquire_silence_s(struct inquirer *q, int rank, double now_s)
{
    pthread_mutex_lock(&q->lock);
    double first_s = q->asked[rank].first_s;
    pthread_mutex_unlock(&q->lock);
    return first_s > 0 ? now_s - first_s : 0;
}

const char *inquire_host(const struct inquirer *q, int rank)
{
    return q->peers[rank].host;
}
