/** The tables of the bounds under overload. */

import { RESPONSE_BYTES } from '../../src/api/common/operation.ts';
import {
  ADMIN_CONNECTIONS_MAX,
  ADMIN_REQUEST_TIMEOUT_MS,
  BUFFERED_BODY_BYTES_MAX,
  CHECK_QUEUE_ENTRIES,
  GATEWAY_CONNECTIONS_SHARE,
  LONG_REQUESTS_MAX,
  PENDING_BYTES_MAX,
  PENDING_CHANGES_MAX,
  PENDING_OPERATION_BYTES_MAX,
  TURN_CONNECTIONS_MAX,
  TURN_REQUESTS,
  TURN_REQUESTS_PER_CONNECTION,
  UNSENT_RESPONSE_BYTES_MAX,
} from '../../src/core/constants.ts';
import type { SHED_REASONS } from '../../src/observe/metric-declarations.ts';
import { inlineCode, markdownTable } from './markdown.ts';
import { bytesText, grouped, secondsText } from './quantities.ts';

/** For example `1 MiB for an export, 16 KiB for a change`, with all estimates. */
export const RESPONSE_ESTIMATES = [
  `${bytesText(RESPONSE_BYTES.export)} for an export`,
  `${bytesText(RESPONSE_BYTES.figures)} for a timeline or the namespaces of analytics`,
  `${bytesText(RESPONSE_BYTES.read)} for another read`,
  `${bytesText(RESPONSE_BYTES.change)} for a change`,
].join(', ');

type Reason = (typeof SHED_REASONS)[number];

const REJECTING: readonly [bound: string, effect: string, reason: Reason][] = [
  [
    `open connections: \`WEIR_CONNECTIONS\`, 1/${1 / GATEWAY_CONNECTIONS_SHARE} of them ` +
      'reserved for gateways if they have their own listener',
    'a new connection gets a 503 before its first request, and is closed. A client that sends ' +
      'at once and reads late may see a reset instead. With TLS, weir closes the connection ' +
      'without a response and before the handshake, because the handshake would cost more than ' +
      'the response',
    'connections',
  ],
  [
    `${bytesText(BUFFERED_BODY_BYTES_MAX)} of bodies on each acceptor that are incomplete, or ` +
      'wait for a [turn](#turns)',
    'a 503. After an incomplete body the connection is closed',
    'bodies',
  ],
  [
    `${bytesText(PENDING_OPERATION_BYTES_MAX)} of pending operations on each acceptor: the body ` +
      `of each, and an estimate of its response. The estimate is ${RESPONSE_ESTIMATES}`,
    'a 503',
    'operations',
  ],
  [
    `${grouped(PENDING_CHANGES_MAX)} pending changes, or ${bytesText(PENDING_BYTES_MAX)} of ` +
      'their bodies, on all acceptors together',
    'a 503',
    'changes',
  ],
  [
    "responses that the client does not read: those in the kernel's buffers, and a few more for " +
      'each connection',
    'the connection is closed, because the client would not read a 503 either',
    'unread_responses',
  ],
  [
    `${bytesText(UNSENT_RESPONSE_BYTES_MAX)} of large responses in transmission on each acceptor`,
    'the connection is closed',
    'unread_responses',
  ],
  [
    `${grouped(TURN_REQUESTS)} requests in one [turn](#turns) of an acceptor, and ` +
      `${TURN_REQUESTS_PER_CONNECTION} more for each of up to ${TURN_CONNECTIONS_MAX} open ` +
      'connections. What takes longer than a request counts as several',
    'further requests wait for later turns. A connection on which another request follows one ' +
      'that waits is closed',
    'pipelined',
  ],
  [
    `${LONG_REQUESTS_MAX} lists of checks on each acceptor that take longer than a turn`,
    'a 503',
    'lists',
  ],
];

const NOT_REJECTING: readonly [bound: string, effect: string][] = [
  [
    `${grouped(CHECK_QUEUE_ENTRIES)} entries in each queue between an acceptor and a shard worker`,
    'the acceptor decides the check itself; `weir_queue_full_total` counts it',
  ],
  [
    `${ADMIN_CONNECTIONS_MAX} connections of the ` +
      '[admin port](#health-endpoints-and-the-admin-port)',
    'the connection that has been idle for the longest time is closed',
  ],
  [
    `${secondsText(ADMIN_REQUEST_TIMEOUT_MS)} without a request, or with an unread response, on ` +
      'the admin port',
    'the connection is closed',
  ],
];

export const OVERLOAD_PARTS: Readonly<Record<string, () => string>> = {
  'overload-rejections': () => {
    const rows = REJECTING.map(([bound, effect, reason]) => [bound, effect, inlineCode(reason)]);
    return markdownTable(['bound', 'if it is exceeded', '`reason`'], rows);
  },
  'overload-without-rejection': () => markdownTable(['bound', 'if it is reached'], NOT_REJECTING),
};
