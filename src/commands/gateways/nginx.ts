/**
 * nginx 1.22 and later. It asks by `auth_request`, which admits by a 2xx and refuses by a 403, of
 * which `error_page` makes a 429. Where weir is not there or too slow, the 502 or 504 is caught in
 * the location that asks. Any other answer of weir is a 500 of the request itself, which the error
 * log has, and is caught there. Both end as the policy says; but what a client can bring about by
 * its own head refuses: it would let itself in.
 */

import { StartError } from '../../core/errors.ts';
import type { Policy } from '../../policies/policy.ts';
import { quotaExceeded, reducedCapacity } from '../../policies/quota.ts';
import { identifyingHeaders, identifyingNames, quotaHeaders } from './common.ts';
import { CONNECTIONS_MAX, type GatewaySetup, TIMEOUT_MS, type WeirAddress } from './setup.ts';

/** What nginx has a variable for of its own, and does not drop for its name. */
const PLAIN_NAME = /^[a-z0-9-]+$/i;
/** The status of the location that asks weir: none where weir was not asked, 20x if it allows. */
const NOT_DENIED = '"^(20.)?$"';
/** In a header: of a head with one of these weir takes no notice, so that it would not answer. */
const CONTROL_CHARACTERS = '[\\x00-\\x08\\x0a-\\x1f]';

/** @throws StartError where the policy looks at a header that nginx drops */
export function nginx({ policy, weir, listenPort, upstream }: GatewaySetup): string {
  const { namespace, onError } = policy;
  const names = quotaHeaders(policy);
  const told = names.map((name) => `add_header ${name} ${responseVariable(name)} always;`);
  const headers = identifyingHeaders(policy);
  const dropped = headers.find((name) => !PLAIN_NAME.test(name));
  if (dropped !== undefined) {
    throw new StartError(
      `nginx takes headers whose names are letters, digits and "-", and the policy looks at` +
        ` ${JSON.stringify(dropped)}`,
    );
  }
  return `\
# nginx 1.22 or later, which asks weir about each request by the policy of ${namespace}.
# To try it: mkdir nginx && nginx -p nginx -c "$PWD/nginx.conf" -g 'daemon off;'

worker_processes auto;
worker_rlimit_nofile 16384;
pid nginx.pid;
error_log stderr;

events {
  # A request takes up to three: from the client, to weir, to the application.
  worker_connections 8192;
}

http {
  access_log off;
  client_body_temp_path client_body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;

  upstream weir {
    server ${weirUpstream(weir)} max_fails=0;
    # Of each process. A flood that has to connect anew for each check may wait too long.
    keepalive ${CONNECTIONS_MAX};
    # Shorter than the 10 s after which weir closes a connection that is not used.
    keepalive_timeout 5s;
  }

  upstream application {
    server ${upstream.host}:${upstream.port};
    keepalive 64;
    # Shorter than the 5 s of Node.js.
    keepalive_timeout 4s;
  }

  # Of a refusal by weir, and of one because weir did not answer.
  map ${responseVariable('Retry-After')} $retry_after {
    default ${responseVariable('Retry-After')};
    "" 1;
  }
  map ${responseVariable('RateLimit')} $problem {
    default '${quotaExceeded()}';
    "" '${reducedCapacity()}';
  }

  # HTTP/1.0 may come without one, and HTTP/1.1 may not go without.
  map $http_host $host_asked_for {
    default $http_host;
    "" $proxy_host;
  }

  # To WebSocket only: by another protocol a client could ask past weir.
  map $http_upgrade $protocol {
    default "";
    "~*^websocket$" websocket;
  }
  map $protocol $connection_to_application {
    default "";
    websocket upgrade;
  }

  server {
    listen ${listenPort};
    # A client may send many kilobytes of cookies, but no more than weir reads.
    large_client_header_buffers 2 15k;${block(4, controlCharacterRules(policy))}

    # What the application gets; the location that asks weir has its own.
    proxy_http_version 1.1;
    proxy_set_header Upgrade $protocol;
    proxy_set_header Connection $connection_to_application;
    proxy_set_header Host $host_asked_for;
    proxy_set_header X-Forwarded-For ${forwardedFor(policy)};
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Weir-Key "";${block(
      4,
      headers.length > 0 ? ['# The very one by which weir has counted.'] : [],
      headers.map((name) => `proxy_set_header ${name} $http_${variableName(name)};`),
    )}

    location / {
      auth_request /_weir;${block(
        6,
        [...names, 'Retry-After'].map((name) => {
          return `auth_request_set ${responseVariable(name)} $upstream_http_${variableName(name)};`;
        }),
        ['auth_request_set $weir_status $status;'],
        names.map((name) => `proxy_hide_header ${name};`),
        told,
      )}
      # The application's own answers are not changed.
      error_page 403 = @limited;
      # Weir gave an answer that it should not give; the error log says which.
      error_page 500 = ${onError === 'allow' ? '@unlimited' : '@limited'};
      proxy_pass http://application;
    }

    location = /_weir {
      internal;
      proxy_pass http://weir/v1/auth-request/${namespace};
      proxy_method HEAD;
      proxy_pass_request_body off;
      # Of the body that stays here; location / has its own.
      client_max_body_size 0;
      proxy_set_header Content-Length "";
      proxy_set_header Connection "";
      # Nothing of the client goes to weir but what identifies it${cookiesComment(policy)}.
      proxy_pass_request_headers off;${block(6, identityLines(policy), keyLines(weir))}
      # Longer than a flood delays an answer on a busy machine.
      proxy_connect_timeout ${TIMEOUT_MS}ms;
      proxy_send_timeout ${TIMEOUT_MS}ms;
      proxy_read_timeout ${TIMEOUT_MS}ms;
      # Weir's answer names the namespace twice for each of up to 8 windows.
      proxy_buffer_size 12k;
      # What may have been counted is not asked again.
      proxy_next_upstream off;
      # Weir is not there, or too slow.
      error_page 502 504 = @unanswered;
      # To auth_request a 401 would be a refusal; it is a wrong key.
      proxy_intercept_errors on;
      error_page 401 = @wrong_key;
      # A head that weir does not take: the client's own doing.
      error_page 400 413 431 505 = @wrong_head;
    }

    location @wrong_head {
      return 403;
    }

    location @unanswered {
      # ${onError === 'allow' ? 'The request goes on, without a limit.' : 'The request is refused.'}
      return ${onError === 'allow' ? 204 : 403};
    }

    location @wrong_key {
      return 500;
    }

    location @limited {
      # Weir was not asked or allowed the request: it was denied otherwise, as by "deny all".
      if ($weir_status ~ ${NOT_DENIED}) {
        # An empty header is not sent, and takes the place of those below.
        add_header Retry-After "";
        return 403;
      }
      default_type application/problem+json;
      add_header Retry-After $retry_after always;
      add_header Cache-Control no-store always;${block(6, told)}
      return 429 $problem;
    }${block(4, onError === 'allow' ? ['', ...UNLIMITED_LOCATION] : [])}
  }
}
`;
}

const UNLIMITED_LOCATION = [
  'location @unlimited {',
  '  # Weir did not fail: nginx itself did.',
  `  if ($weir_status ~ ${NOT_DENIED}) { return 500; }`,
  '  proxy_pass http://application;',
  '}',
];

/** Lines of their own, behind the one before. */
function block(indent: number, ...lines: string[][]): string {
  return lines
    .flat()
    .map((line) => (line === '' ? '\n' : `\n${' '.repeat(indent)}${line}`))
    .join('');
}

const variableName = (header: string) => header.toLowerCase().replaceAll('-', '_');
/** Of weir's answer, as long as the request lasts. */
const responseVariable = (header: string) => `$weir_${variableName(header)}`;

/** Of what a client says and weir is told, that it is text. */
function controlCharacterRules(policy: Policy): string[] {
  const names = identifyingHeaders(policy);
  if (policy.trustedHops > 1 && policy.identify.includes('ip')) names.push('x-forwarded-for');
  if (names.length === 0) return [];
  return [
    '# weir does not answer a head with control characters in it.',
    ...names.map(
      (name) => `if ($http_${variableName(name)} ~ "${CONTROL_CHARACTERS}") { return 400; }`,
    ),
  ];
}

/** The address of who is connected; behind other proxies, at the end of what those say. */
function forwardedFor({ trustedHops }: Policy): string {
  return trustedHops === 1 ? '$remote_addr' : '$proxy_add_x_forwarded_for';
}

/** By name nginx finds a cookie whatever its case, and none with a dot. */
function cookiesComment(policy: Policy): string {
  return identifyingNames(policy, 'cookie').length > 0 ? ', and all cookies' : '';
}

/** What weir is told of the caller; nginx itself says it, so a client cannot. */
function identityLines(policy: Policy): string[] {
  const { identify } = policy;
  const told = identifyingHeaders(policy).map((name) => `${name} $http_${variableName(name)}`);
  if (identify.includes('ip')) told.push(`X-Forwarded-For ${forwardedFor(policy)}`);
  if (identify.includes('method')) told.push('X-Forwarded-Method $request_method');
  if (identify.includes('path')) told.push('X-Forwarded-Uri $request_uri');
  return told.map((what) => `proxy_set_header ${what};`);
}

function keyLines(weir: WeirAddress): string[] {
  if (!weir.needsKey) return ['proxy_set_header X-Weir-Key "";'];
  return [
    '# Put a key of weir that may limit in place of this name, without which nginx does not start,',
    '# and let nobody else read this file.',
    'proxy_set_header X-Weir-Key "$key_of_weir";',
  ];
}

function weirUpstream(weir: WeirAddress): string {
  if ('socket' in weir) return `"unix:${weir.socket.replace(/["\\]/g, '\\$&')}"`;
  return `${weir.host}:${weir.port}`;
}
