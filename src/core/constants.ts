/**
 * Every bound of the service, in one place. Nothing here changes at run time; whoever needs a bound
 * imports it, so that a reader can trust this page. Characters are Unicode code points.
 */

/** The largest limit, cost and use: sums of two stay distinguishable as doubles. */
export const AMOUNT_MAX = Number.MAX_SAFE_INTEGER;

export const IDENTIFIER_MAX_CHARACTERS = 512;
export const NAMESPACE_MAX_CHARACTERS = 512;
export const NAMESPACES_MAX = 10_000;
/** Names that begin so are ids, never names. */
export const NAMESPACE_ID_PREFIX = 'rlns_';

export const DURATION_MIN_MS = 1_000;
/** 100 years of 365.25 days. */
export const DURATION_MAX_MS = 3_155_760_000_000;
/** Of a check of v2: 30 days. */
export const V2_DURATION_MAX_MS = 2_592_000_000;

/** Overrides without a star, and with one in the namespace or the identifier. */
export const EXACT_OVERRIDES_MAX = 100_000;
export const WILDCARD_OVERRIDES_MAX = 10_000;
/** Policies of gateways, windows of one, and parts that together are an identity. */
export const POLICIES_MAX = 1_000;
export const POLICY_WINDOWS_MAX = 8;
export const IDENTITY_PARTS_MAX = 8;
/** What is longer is no part of one; tokens of identity providers are a few thousand characters. */
export const IDENTITY_PART_MAX_CHARACTERS = 8_192;
/** Proxies, one behind the other, whose word is taken for who asked them. */
export const TRUSTED_HOPS_MAX = 32;

/** Stars in each of the two texts of an override. */
export const WILDCARDS_PER_TEXT_MAX = 16;
/** The shortest identifier of an override, as v1 has it. */
export const OVERRIDE_IDENTIFIER_MIN_CHARACTERS = 3;

export const BODY_MAX_BYTES = 65_536;
/** Checks of one request. */
export const MULTI_LIMIT_MAX = 100;
export const MULTI_LIMIT_MAX_BYTES = 1_048_576;
/** What begins a value in them; those of a right request are some thousand at most. */
export const MULTI_LIMIT_VALUES_MAX = 10_000;
/** The longest answer to one: it repeats its names, where an escape makes six bytes of one. */
export const RESPONSE_MAX_BYTES = 1_048_576;
/** Of a request that imports overrides. */
export const IMPORT_MAX_BYTES = 1_048_576;
/** The shortest overrides that fill it have half as many. */
export const IMPORT_VALUES_MAX = 200_000;
/** Items of a page of a list, and of an export. */
export const PAGE_MAX = 100;
/** Items of a page of v2 that does not say how many. */
export const V2_PAGE_DEFAULT = 50;
export const EXPORT_PAGE_MAX = 1_000;
export const RESOURCES_MAX = 32;
export const RESOURCE_TEXT_MAX_CHARACTERS = 512;

/** The shortest key that WEIR_ROOT_KEY may hold, in characters: shorter ones can be guessed. */
export const ROOT_KEY_MIN_CHARACTERS = 16;
/** The longest API key that a request may carry, in characters. */
export const KEY_MAX_CHARACTERS = 512;
export const KEYS_MAX = 1_000;
export const KEY_NAME_MAX_CHARACTERS = 256;
/** Permissions of a key. */
export const PERMISSIONS_MAX = 1_000;
/** The newest entries of the audit log are kept. */
export const AUDIT_ENTRIES_MAX = 10_000;
/** Items that an entry of the audit log lists, which bound its size: the rest is counted. */
export const AUDIT_PERMISSIONS_MAX = 100;
export const AUDIT_NAMESPACES_MAX = 16;
/** Header values that an acceptor remembers as verified. */
export const VERIFIED_TOKENS_MAX = 4_096;

/** The head of a request, in bytes; gateways forward cookies. uWebSockets.js enforces it. */
export const REQUEST_HEAD_MAX_BYTES = 32_768;

/** The longest path of a Unix socket that the kernel takes. */
export const SOCKET_PATH_MAX_BYTES = process.platform === 'linux' ? 107 : 103;

export const COUNTERS_MIN = 1_024;
export const COUNTERS_MAX = 16_777_216;
/** The default where memory allows it, and where it leaves no room. */
export const COUNTERS_DEFAULT_MAX = 1_048_576;
export const COUNTERS_DEFAULT_MIN = 4_096;
/** Slots a table has for each counter that it promises to hold. */
export const SLOTS_PER_COUNTER = 2;
/** A line of the cache: what different threads write lies in different ones. */
export const CACHE_LINE_BYTES = 64;
/** Tables, each in a buffer of its own. */
export const SHARDS = 16;

/** Entries of the ring from an acceptor to a shard worker: what may be handed over ahead. */
export const CHECK_QUEUE_ENTRIES = 1_024;
/** Answers of the ring back: all that may be asked at once, and what a dead worker repeats. */
export const REPLY_QUEUE_ENTRIES = 2 * CHECK_QUEUE_ENTRIES;

/** Namespaces that have series of their own in the metrics; all others share one. */
export const METRIC_NAMESPACES_MAX = 100;

export const ACCEPTORS_MAX = 64;
export const WORKERS_MAX = SHARDS;
export const DRAIN_MAX_MS = 600_000;

/** Changes that wait to be written, and the bytes of their requests. */
export const PENDING_CHANGES_MAX = 1_024;
export const PENDING_BYTES_MAX = 16 * IMPORT_MAX_BYTES;

/** Connections that are open, unless the descriptors are fewer. */
export const CONNECTIONS_MAX = 1_000_000;
/** Of them, what is kept for gateways where they have a place of their own. */
export const GATEWAY_CONNECTIONS_SHARE = 1 / 8;
/** Descriptors kept from connections: for the process and its threads, files, the admin port. */
export const RESERVED_DESCRIPTORS = 640;
export const RESERVED_DESCRIPTORS_PER_THREAD = 4;
/** Connections of the admin port, for a moment twice as many; those reserved for probes. */
export const ADMIN_CONNECTIONS_MAX = 256;
export const ADMIN_CONNECTIONS_FOR_PROBES = 16;
/** How long a connection of the admin port may be idle, and a request may take to arrive. */
export const ADMIN_REQUEST_TIMEOUT_MS = 5_000;

/** Buffers of the bodies of one acceptor that have not come whole. */
export const BUFFERED_BODY_BYTES_MAX = 16 * IMPORT_MAX_BYTES;
/** What of the answers of one acceptor waits for clients to take it. */
export const UNSENT_RESPONSE_BYTES_MAX = 16 * RESPONSE_MAX_BYTES;

/** What operations of one acceptor weigh, bodies and all, that the main thread has not answered. */
export const PENDING_OPERATION_BYTES_MAX = 4 * IMPORT_MAX_BYTES;

/** Error answers that an acceptor reports for the log at level debug. */
export const ERROR_REPORTS_PER_S = 10;

/** How long the task that compiles overrides may take; some ms are usual. */
export const COMPILE_TIMEOUT_MS = 2_000;

/** How often an acceptor shows that its loop turns, and how often the main thread looks. */
export const HEARTBEAT_MS = 200;
/** Looks in a row without a sign of life after which an acceptor is hung. */
export const MISSED_HEARTBEATS_MAX = 5;
/** The same for a shard worker, which has to be back within a second. */
export const WORKER_HEARTBEAT_MS = 100;
export const WORKER_MISSED_HEARTBEATS_MAX = 5;
/** The same for one that waits for the disk: some take long, and there is another way to decide. */
export const DISK_MISSED_HEARTBEATS_MAX = 50;
/** How long a thread of a pool may take until it runs its task. */
export const THREAD_BOOT_MS = 5_000;
/** What a shard worker that died at once waits before it is replaced; doubled each time. */
export const WORKER_BACKOFF_MS = { initial: 10, max: 1_000 } as const;

/** A check that its worker has not begun by then is taken back and decided in place. */
export const WITHDRAW_AFTER_MS = 25;
/** One that a worker had begun when it died is answered by its successor, or by then with a 503. */
export const CHECK_DEADLINE_MS = 2_000;

/** How often expired counters are looked for. */
export const SWEEP_INTERVAL_MS = 5_000;

/** How often counters are written to files, and no more often than this. */
export const CHECKPOINT_INTERVAL_MIN_MS = 100;
export const CHECKPOINT_INTERVAL_MAX_MS = 3_600_000;
/**
 * Checkpoints that are further ahead of the system's clock were made under a clock that went wrong:
 * to go on from there would be to share its error.
 */
export const CLOCK_AHEAD_MAX_MS = 172_800_000;

/** How often the anchor of the clock is compared with the system's. */
export const CLOCK_TICK_MS = 100;

/** Of an identifier or the name of a namespace: UTF-8 takes at most four bytes for a code point. */
export const NAME_MAX_BYTES = 4 * Math.max(IDENTIFIER_MAX_CHARACTERS, NAMESPACE_MAX_CHARACTERS);

const invariants: readonly [boolean, string][] = [
  [NAME_MAX_BYTES * 2 < BODY_MAX_BYTES, 'a body holds the longest namespace and identifier'],
  [
    PENDING_BYTES_MAX > IMPORT_MAX_BYTES && PENDING_OPERATION_BYTES_MAX > IMPORT_MAX_BYTES,
    'an import may wait',
  ],
  [
    BUFFERED_BODY_BYTES_MAX > 2 * Math.max(IMPORT_MAX_BYTES, MULTI_LIMIT_MAX_BYTES),
    'the largest body fits beside its half',
  ],
  [UNSENT_RESPONSE_BYTES_MAX > RESPONSE_MAX_BYTES, 'the longest answer may wait'],
  [RESERVED_DESCRIPTORS > 2 * ADMIN_CONNECTIONS_MAX, 'the admin port has descriptors'],
  [
    ADMIN_CONNECTIONS_FOR_PROBES < ADMIN_CONNECTIONS_MAX,
    'some connections of the admin port are for any path',
  ],
  [
    V2_DURATION_MAX_MS <= DURATION_MAX_MS && V2_PAGE_DEFAULT <= PAGE_MAX,
    'v2 takes no more than v1',
  ],
  [
    MULTI_LIMIT_MAX * 2 * NAME_MAX_BYTES < MULTI_LIMIT_MAX_BYTES,
    'a request holds as many checks as it may, of the longest names',
  ],
  [
    MULTI_LIMIT_MAX * (2 * 6 * IDENTIFIER_MAX_CHARACTERS + 1_024) < RESPONSE_MAX_BYTES,
    'an answer to many checks fits its buffer',
  ],
  [DURATION_MAX_MS * 2 < Number.MAX_SAFE_INTEGER, 'the end of the longest window is exact'],
  [DURATION_MIN_MS > CLOCK_TICK_MS * 2, 'a clock step is seen within the shortest window'],
  [
    COUNTERS_MAX * SLOTS_PER_COUNTER * CACHE_LINE_BYTES <= 2 ** 31 * SHARDS,
    'a shard, whose slots are lines, is indexed by int32',
  ],
  [POLICY_WINDOWS_MAX <= MULTI_LIMIT_MAX, 'the windows of a policy are decided together'],
  [WORKERS_MAX <= SHARDS, 'every worker has a shard'],
  [(CHECK_QUEUE_ENTRIES & (CHECK_QUEUE_ENTRIES - 1)) === 0, 'a ring is indexed by a mask'],
  [
    REPLY_QUEUE_ENTRIES > CHECK_QUEUE_ENTRIES,
    'every check that is asked at once has room for its answer',
  ],
  [
    WORKER_HEARTBEAT_MS * WORKER_MISSED_HEARTBEATS_MAX < HEARTBEAT_MS * MISSED_HEARTBEATS_MAX,
    'a hung worker is replaced before an acceptor that waits for it counts as hung',
  ],
  [
    WITHDRAW_AFTER_MS < WORKER_HEARTBEAT_MS * WORKER_MISSED_HEARTBEATS_MAX &&
      CHECK_DEADLINE_MS > 1_000,
    'checks are taken back from a hung worker, and wait for its successor',
  ],
];
for (const [holds, what] of invariants) {
  if (!holds) throw new Error(`limits.ts contradicts itself: ${what}`);
}
