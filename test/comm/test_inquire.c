/* Asking ranks of another machine where they are. Here both machines are this process: rank 0 on
 * one, ranks 1 and 2 on the other. The clock is the test's own: it turns only when a test turns it.
 */
#include "../support/await.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "comm/inquire.h"
#include "comm/internal.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3, GROUP = 7 };

static const unsigned char token[INQUIRE_TOKEN] = "0123456789abcde";

struct machine {
    struct flight_board board;
    struct flight_record *records[RANKS], own[RANKS];
    bool here[RANKS];
    struct inquirer *inquirer;
    struct inquire_peer self;
};

static atomic_int clock_s = 1000;

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    return atomic_load(&clock_s);
}

static void clock_turn(int seconds)
{
    atomic_fetch_add(&clock_s, seconds);
}

static double silence_s(const struct machine *m, int rank)
{
    return inquire_silence_s(m->inquirer, rank, atomic_load(&clock_s));
}

static bool machine_open(struct machine *m, int first, int end)
{
    *m = (struct machine){.board = {.count = RANKS}};
    m->board.records = m->records;
    m->board.here = m->here;
    for (int r = first; r < end; r++) {
        m->here[r] = true;
        m->records[r] = &m->own[r];
        atomic_store(&m->own[r].pid, (int)getpid());
    }
    m->inquirer = inquire_open(&m->self);
    m->self.machine = first;
    m->self.address[0] = htonl(INADDR_LOOPBACK);
    m->self.addresses = 1;
    return m->inquirer != NULL;
}

/* port: 0, or that which stands in for the second machine's. */
static void machines_open(struct machine *a, struct machine *b, uint16_t port)
{
    if (!machine_open(a, 0, 1)) {
        print_message("SKIPPED: this machine has no network address\n");
        skip();
    }
    assert_true(machine_open(b, 1, RANKS));
    struct machine *both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        struct inquire_peer *peers = calloc(RANKS, sizeof *peers);
        assert_non_null(peers);
        peers[0] = a->self;
        peers[1] = peers[2] = b->self;
        if (port)
            peers[1].port = peers[2].port = port;
        snprintf(peers[2].host, sizeof peers[2].host, "far");
        assert_true(inquire_start(both[i]->inquirer, &both[i]->board, i, peers, token));
    }
}

static struct flight_entry entry_of(uint64_t sequence, uint64_t group, enum flight_state state)
{
    double now_s = atomic_load(&clock_s);
    return (struct flight_entry){.group = group,
                                 .sequence = sequence,
                                 .started_s = now_s - 5,
                                 .changed_s = now_s - 4,
                                 .op = COMM_ALL_GATHER,
                                 .dtype = LS_F32,
                                 .state = state,
                                 .name = "tp",
                                 .file = "step.c"};
}

/* Many operations; one of the group long ago, and one that waits. */
static void record_fill(struct flight_record *record)
{
    for (uint64_t i = 0; i < 40; i++) {
        struct flight_entry entry =
            entry_of(i, i == 12 ? GROUP : 1, i == 20 ? FLIGHT_WAITING : FLIGHT_DONE);
        flight_write(record, i, &entry);
    }
    atomic_store(&record->count, 40);
    ls_progress_set(&record->progress, atomic_load(&clock_s) - 3);
}

CASE(test_what_is_answered)
{
    static struct machine a, b;
    const struct ls_comm comm = {.board = &a.board};
    struct flight_picked picked[2];
    machines_open(&a, &b, 0);
    record_fill(&b.own[2]);
    struct flight_entry behind = entry_of(3, 1, FLIGHT_DONE), at = {0};
    flight_write(&b.own[1], 0, &behind);
    atomic_store(&b.own[1].count, 1);
    assert_string_equal(inquire_host(a.inquirer, 2), "far");
    atomic_store(&b.own[2].left, 1 + 1);
    inquire_ask(a.inquirer, 2, GROUP, 0.1);
    while (!a.records[2] || !atomic_load(&a.records[2]->told))
        await_pause();
    assert_true(silence_s(&a, 2) == 0); /* who asks waits until the answer is stored whole */
    assert_int_equal(atomic_load(&a.records[2]->told), 1 + FLIGHT_RUNS);
    assert_int_equal(atomic_load(&a.records[2]->left), 1 + 1);
    assert_int_equal(atomic_load(&a.records[2]->count), 40);
    clock_turn(2);
    double age_s = atomic_load(&clock_s) - ls_progress_s(&a.records[2]->progress);
    if (age_s != 3 + 2)
        fail_msg("its progress was %g s ago, expected 5", age_s);
    assert_int_equal(flight_pick(a.records[2], GROUP, picked, 2), 2);
    assert_int_equal(picked[0].index, 20);
    assert_int_equal(picked[0].entry.state, FLIGHT_WAITING);
    assert_int_equal(picked[1].index, 12);
    assert_string_equal(picked[1].entry.name, "tp");
    /* Its machine knows for whom it waits: rank 1 has not come to operation 20. */
    assert_int_equal(flight_waits_for(&a.board, 2, &at), 1);
    assert_int_equal(at.sequence, 20);
    /* What is known of a rank does not bring it here: it still writes what its machine keeps. */
    assert_false(ls_comm_on_machine(&comm, 2));
    inquire_ask(a.inquirer, 0, GROUP, 0); /* of this machine: nothing */
    inquire_close(a.inquirer);
    inquire_close(b.inquirer);
    assert_null(a.records[2]);
    assert_non_null(a.records[0]);
}

/* ---- somebody in between --------------------------------------------------------------------- */

static int socket_open(uint16_t *port)
{
    struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof self;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&self, sizeof self), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&self, &length), 0);
    *port = self.sin_port;
    return fd;
}

static void send_to(int fd, const void *data, size_t bytes, uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = port};
    assert_int_equal(sendto(fd, data, bytes, 0, (struct sockaddr *)&to, sizeof to), bytes);
}

/* Returns when the first machine has taken all messages sent to it so far: it has answered a query
 * that the second one, b, sent after them. */
static void catch_up(const struct machine *b)
{
    inquire_ask(b->inquirer, 0, GROUP, 0);
    clock_turn(1);
    while (silence_s(b, 0) > 0)
        await_pause();
}

/* Bits that are not those of the job, or not in range, change nothing that a reader would trip
 * over: indices and texts are in range whatever comes. */
CASE(test_messages_of_strangers)
{
    static struct machine a, b;
    char query[2048], answer[2048], bent[2048];
    uint16_t port;
    int fd = socket_open(&port);
    machines_open(&a, &b, port);
    record_fill(&b.own[2]);
    inquire_ask(a.inquirer, 2, GROUP, 0);
    ssize_t asked = recv(fd, query, sizeof query, 0);
    assert_true(asked > INQUIRE_TOKEN);
    /* Another token: no answer. */
    memcpy(bent, query, (size_t)asked);
    bent[3] ^= 1;
    send_to(fd, bent, (size_t)asked, b.self.port);
    send_to(fd, query, (size_t)asked - 1, b.self.port);
    send_to(fd, query, (size_t)asked, b.self.port);
    ssize_t got = recv(fd, answer, sizeof answer, 0);
    while (got == asked) /* the query to its neighbour */
        got = recv(fd, answer, sizeof answer, 0);
    assert_true(got > asked && got <= 1400);
    assert_memory_equal(answer, token, INQUIRE_TOKEN);
    srandom(1);
    for (int i = 0; i < 3000; i++) {
        memcpy(bent, answer, (size_t)got);
        for (int n = 0; n < 1 + i % 4; n++)
            bent[random() % (i % 2 ? 80 : got)] = (char)random();
        send_to(fd, bent, (size_t)(i % 50 ? got : random() % got), a.self.port);
        if (i % 16 == 15) /* a socket drops what it has no room for */
            catch_up(&b);
    }
    send_to(fd, answer, (size_t)got, a.self.port);
    while (silence_s(&a, 2) > 0)
        await_pause();
    struct flight_entry entry;
    int found = 0;
    for (uint64_t i = 0; i < 40; i++) {
        if (!flight_read(a.records[2], i, &entry))
            continue;
        found++;
        assert_true(flight_entry_valid(&entry, RANKS));
        assert_true(strlen(entry.name) < sizeof entry.name);
    }
    assert_in_range(found, 1, 40);
    close(fd);
    inquire_close(a.inquirer);
    inquire_close(b.inquirer);
}

CASE(test_silence)
{
    static struct machine a, b;
    uint16_t port;
    int fd = socket_open(&port); /* hears, and says nothing */
    machines_open(&a, &b, port);
    assert_true(silence_s(&a, 1) == 0);
    for (int i = 0; i < 5; i++) {
        inquire_ask(a.inquirer, 1, GROUP, 2);
        clock_turn(3);
    }
    if (silence_s(&a, 1) != 15)
        fail_msg("silent for %g s, expected 15", silence_s(&a, 1));
    assert_int_equal(atomic_load(&a.records[1]->told), 0);
    /* Nobody asks for more than four intervals: what is beyond them is no silence. */
    clock_turn(6);
    inquire_ask(a.inquirer, 1, GROUP, 2);
    assert_true(silence_s(&a, 1) == 15 + 6 - 1);
    close(fd);
    inquire_close(a.inquirer);
    inquire_close(b.inquirer);
}

/* A wait that polls, of a rank that gets a core once a second, and then all the time. */
CASE(test_time_without_a_core)
{
    struct flight_board board = {.count = 1};
    const struct ls_comm comm = {.board = &board, .timeout_s = 3};
    const struct flight_late late = {0};
    struct flight_wait wait;
    double now_s = 100;
    int turns = 0;
    flight_wait_begin(&wait, &comm, now_s);
    for (int i = 0; i < 60; i++) {
        now_s += 1;
        flight_wait_seen(&wait, now_s);
        if (now_s >= wait.look_s)
            assert_true(flight_wait_look(&wait, &comm, &late, now_s));
    }
    do {
        now_s += 0.01;
        turns++;
        flight_wait_seen(&wait, now_s);
    } while (now_s < wait.look_s || flight_wait_look(&wait, &comm, &late, now_s));
    if (fabs(turns * 0.01 + 60 * 0.02 - comm.timeout_s) > 0.05)
        fail_msg("over after %d turns", turns);
}

SUITE_MAIN(NULL, NULL)
