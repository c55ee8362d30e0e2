/** The alerts for machines that share their counters in Redis. */

import type { Alert } from './alert.ts';

export const CLUSTER_ALERTS: Readonly<Record<string, Alert>> = {
  WeirRedisDown: {
    expr: 'weir_redis_connected == 0',
    for: '1m',
    severity: 'page',
    summary: 'Shard worker {{ $labels.worker }} of {{ $labels.instance }} cannot use Redis',
    meaning: '`WEIR_ON_ENGINE_DOWN` decides its checks. Limits are not shared.',
    remedy: 'Read the error in the log, and `reasons` of `/readyz`. Check Redis and the network.',
    see: 'cluster.md#what-each-fault-does',
  },
  WeirEngineDown: {
    expr: 'increase(weir_engine_down_decisions_total[5m]) > 0',
    for: '0m',
    severity: 'page',
    summary: '{{ $labels.instance }} decided checks without Redis: {{ $labels.outcome }}',
    meaning: '`WEIR_ON_ENGINE_DOWN` decided checks without Redis. A limit may be exceeded.',
    remedy: 'Compare with WeirRedisDown and WeirRedisSlow.',
    see: 'cluster.md#what-each-fault-does',
  },
  WeirRedisFlaps: {
    expr: 'increase(weir_redis_breaker_openings_total[15m]) > 3',
    for: '0m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} loses Redis again and again',
    meaning: 'A circuit breaker opened more than three times in 15 minutes.',
    remedy:
      'Compare with the latency of Redis and with its log. Look for slow commands, forks and ' +
      'failovers.',
    see: 'cluster.md#what-each-fault-does',
  },
  WeirRedisCallsFail: {
    expr:
      'sum by (job, instance) (rate(weir_redis_call_failures_total[5m])) / ' +
      'sum by (job, instance) (rate(weir_redis_calls_total[5m])) > 0.01',
    for: '5m',
    severity: 'ticket',
    summary: '{{ $value | humanizePercentage }} of the calls of {{ $labels.instance }} fail',
    meaning: 'More than one call to Redis in a hundred fails or is late.',
    remedy:
      'Read the error in the log. Check the permissions of the user, `maxmemory`, and whether ' +
      'the server is a read-only replica.',
    see: 'cluster.md#redis',
  },
  WeirRedisErrors: {
    expr: 'increase(weir_redis_errors_total{kind!~"unreachable|lost|timeout|loading"}[10m]) > 0',
    for: '5m',
    severity: 'ticket',
    summary: 'Redis refuses calls of {{ $labels.instance }}: {{ $labels.kind }}',
    meaning:
      '`denied` means permissions of the user. `outOfMemory` means `maxmemory`. `readOnly` means ' +
      'a replica. `misconfigured` means too few replicas, or a Redis that cannot save its data.',
    remedy: 'Read the answer of Redis in the log.',
    see: 'cluster.md#redis',
  },
  WeirRedisClockBack: {
    expr: 'weir_redis_clock_lag_seconds > 1',
    for: '1m',
    severity: 'ticket',
    summary:
      'Redis is {{ $value | humanizeDuration }} behind the windows of {{ $labels.instance }}',
    meaning:
      'The clock of Redis was set back, or a failover went to a server whose clock is behind. ' +
      'Windows last up to a ninth longer until it agrees with the clock of the windows.',
    remedy: 'Synchronize the clocks of the Redis servers.',
    see: 'concepts.md#time',
  },
  WeirRedisClockDiffers: {
    expr: 'abs(weir_redis_clock_offset_seconds) > 5',
    for: '5m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} and Redis differ by {{ $value | humanizeDuration }}',
    meaning:
      "Windows follow the clock of Redis, which differs from this machine's. `reset` in " +
      'responses does too.',
    remedy: 'Synchronize the clocks of Redis and of the machines.',
    see: 'concepts.md#time',
  },
  WeirRedisSlow: {
    expr: 'job_instance:weir_redis_call_duration_seconds:p99_rate5m > 0.01',
    for: '10m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} waits {{ $value | humanizeDuration }} for Redis',
    meaning:
      'One call in a hundred takes longer than 10 ms. A check waits for `WEIR_REDIS_TIMEOUT_MS` ' +
      'at most.',
    remedy: 'Give Redis more CPU or a cluster, or move it closer. Run `SLOWLOG GET` in Redis.',
    see: 'cluster.md#sizing',
  },
  WeirRedisBusy: {
    expr: 'sum by (job) (rate(weir_redis_calls_total[10m])) > 20000',
    for: '15m',
    severity: 'ticket',
    summary: '{{ $labels.job }} sends {{ $value | humanize }} calls a second to Redis',
    meaning:
      'All machines together send more than 20 000 calls a second. Replace 20 000 by half of ' +
      'what your Redis can execute.',
    remedy: 'Use Redis Cluster.',
    see: 'cluster.md#sizing',
  },
  WeirCallsPerCheck: {
    expr:
      'sum by (job) (rate(weir_redis_calls_total[10m])) / ' +
      'sum by (job) (rate(weir_decisions_total[10m])) > 1.2 ' +
      'and sum by (job) (rate(weir_decisions_total[10m])) > 100',
    for: '15m',
    severity: 'ticket',
    summary: '{{ $labels.job }} calls Redis {{ $value | humanize }} times for each check',
    meaning:
      'Machines call Redis more than once for each check: recalls, retries, or a short ' +
      '`WEIR_SYNC_MS`.',
    remedy: 'Compare with WeirLeasesRecalled and WeirUnprovenDenials.',
    see: 'cluster.md#how-checks-are-decided',
  },
  WeirTokenRequests: {
    expr:
      'sum by (job) (rate(weir_token_requests_total[10m])) / ' +
      'sum by (job) (rate(weir_decisions_total[10m])) > 1.2 ' +
      'and sum by (job) (rate(weir_decisions_total[10m])) > 100',
    for: '30m',
    severity: 'ticket',
    summary: '{{ $labels.job }} requests tokens {{ $value | humanize }} times for each check',
    meaning:
      'Leases save nothing. The value 1 is normal for many identifiers with few checks each. ' +
      'Above it, machines take tokens from each other.',
    remedy: 'Send an identifier to one machine.',
    see: 'cluster.md#how-checks-are-decided',
  },
  WeirNoLeases: {
    expr:
      'sum by (job) (increase(weir_leases_granted_total[1h])) == 0 ' +
      'and sum by (job) (rate(weir_token_requests_total[1h])) > 10',
    for: '0m',
    severity: 'ticket',
    summary: 'Redis grants no leases to {{ $labels.job }}',
    meaning: '`WEIR_LEASES` is `off`, all limits are below 20, or each identifier is rare.',
    remedy: 'No action is needed if that is intended.',
    see: 'cluster.md#how-checks-are-decided',
  },
  WeirLeasesReturned: {
    expr:
      'sum by (job) (rate(weir_returned_tokens_total[10m])) / ' +
      'sum by (job) (rate(weir_leased_tokens_total[10m])) > 0.5 ' +
      'and sum by (job) (rate(weir_leases_returned_total[10m])) > 1',
    for: '30m',
    severity: 'ticket',
    summary: '{{ $labels.job }} returns {{ $value | humanizePercentage }} of its leased tokens',
    meaning:
      'Most leased tokens are returned unspent. The load of identifiers moves between machines.',
    remedy: 'Send an identifier to one machine.',
    see: 'cluster.md#how-checks-are-decided',
  },
  WeirLeasesRecalled: {
    expr:
      'sum by (job) (rate(weir_leases_recalled_total[10m])) / ' +
      'sum by (job) (rate(weir_leases_granted_total[10m])) > 0.5',
    for: '30m',
    severity: 'ticket',
    summary: '{{ $value | humanizePercentage }} of the leases of {{ $labels.job }} are recalled',
    meaning: 'Most leases are recalled. Identifiers are at their limits on several machines.',
    remedy:
      'No action is needed if checks are fast enough. Otherwise send an identifier to one machine.',
    see: 'cluster.md#how-checks-are-decided',
  },
  WeirLeasesWrittenOff: {
    expr: 'increase(weir_leases_written_off_total[10m]) > 0',
    for: '0m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} wrote off leases of another machine',
    meaning:
      'Another machine did not answer a recall within 10 ms. Its unspent tokens are lost until ' +
      'it reports, or until the window ends.',
    remedy:
      'Find the machine by `weir cluster status`. It was stopped, suspended, cut off, or had no ' +
      'CPU.',
    see: 'cluster.md#what-each-fault-does',
  },
  WeirUnprovenDenials: {
    expr:
      'sum by (job, instance) ' +
      '(increase(weir_unproven_denials_total{cause=~"recall|write_off"}[10m])) > 0',
    for: '10m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} denied checks that may have been within their limit',
    meaning: 'Checks were denied while other machines may have held tokens for them.',
    remedy:
      'Find the machine that does not answer by `weir cluster status`. Give the machines more CPU.',
    see: 'cluster.md#what-each-fault-does',
  },
  WeirRecovering: {
    expr: 'weir_cluster_recovering == 1',
    for: '1m',
    severity: 'page',
    summary: '{{ $labels.instance }} waits for machines: Redis lost counters',
    meaning:
      'Redis lost counters, and a machine has not reported its own. With WEIR_RECOVERY=exact, ' +
      'counters whose usage may be missing are closed.',
    remedy:
      'Connect the machine again. If its process has ended, remove it by `weir cluster forget`.',
    see: 'cluster.md#recovery',
  },
  WeirRecoveryDenials: {
    expr: 'increase(weir_unproven_denials_total{cause="recovery"}[10m]) > 0',
    for: '0m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} denied checks in a recovery',
    meaning:
      'Checks were denied because Redis had lost counters, and not all machines had reported ' +
      'theirs.',
    remedy: 'Act as for WeirRecovering. Let Redis keep its data.',
    see: 'cluster.md#configuration',
  },
  WeirRecovered: {
    expr: 'increase(weir_recoveries_total[1h]) > 0',
    for: '0m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} ended a recovery: {{ $labels.outcome }}',
    meaning: 'Redis has lost counters, and a recovery has ended.',
    remedy: 'Find out why Redis lost them: its log, a restart without persistence, or a failover.',
    see: 'cluster.md#recovery',
  },
  WeirOverLimit: {
    expr: 'sum by (job) (increase(weir_tokens_possibly_over_limit_total[1h])) > 0',
    for: '0m',
    severity: 'page',
    summary: '{{ $labels.job }} may be over its limits by {{ $value | humanize }} tokens',
    meaning:
      'Redis lost usage of a machine that did not report it. Windows may allow again what that ' +
      'machine had allowed. The value is the most that all of them may be over their limits.',
    remedy: 'Find the machine by `weir cluster status`.',
    see: 'cluster.md#recovery',
  },
  WeirNotJoined: {
    expr: 'weir_cluster_joined == 0',
    for: '1m',
    severity: 'page',
    summary: '{{ $labels.instance }} gets no tokens from Redis',
    meaning: 'The other machines do not know this one, so Redis grants it no tokens.',
    remedy:
      '`weir cluster status` shows the machine that has not acknowledged it. Remove a dead one ' +
      'by `weir cluster forget`.',
    see: 'cluster.md#status',
  },
  WeirMachinesMissing: {
    expr: 'weir_cluster_machines < max_over_time(weir_cluster_machines[1d])',
    for: '10m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} sees only {{ $value }} machines',
    meaning:
      'There are fewer machines than at some time in the last day. This alert also fires for a ' +
      'day after you remove a machine.',
    remedy: 'Compare with `weir cluster status`.',
    see: 'cluster.md#status',
  },
  WeirRegistryOld: {
    expr: 'weir_registry_age_seconds > 10',
    for: '1m',
    severity: 'page',
    summary: '{{ $labels.instance }} cannot read the registry in Redis',
    meaning:
      'The machine cannot read overrides, keys and namespaces from Redis. It uses its copy, and ' +
      'rejects changes with a 503.',
    remedy: 'Act as for WeirRedisDown.',
    see: 'cluster.md#registry',
  },
  WeirRegistryBehind: {
    expr: 'weir_registry_version < on (job) group_left () max by (job) (weir_registry_version)',
    for: '1m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} uses an older registry than another machine',
    meaning: 'The machine uses older overrides, keys or namespaces than another one.',
    remedy: 'Read its log, and compare with `weir cluster status`.',
    see: 'cluster.md#registry',
  },
};
