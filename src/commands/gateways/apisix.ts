/** Prints the configuration of APISIX for a policy: the routes of its standalone mode. */

import type { Policy } from '../../policies/policy.ts';
import {
  checkPath,
  denialHeaders,
  httpUrl,
  identifyingHeaders,
  quotaHeaders,
  tcpOnlyError,
  yamlList,
} from './common.ts';
import { type GatewaySetup, TIMEOUT_MS } from './setup.ts';

/** @throws StartError if weir listens for gateways on a Unix socket only */
export function apisix({ policy, weir, listenPort, upstream }: GatewaySetup): string {
  if ('socket' in weir) throw tcpOnlyError('APISIX');
  const trusted = policy.trustedHops > 1 ? ', trusted_addresses: [<proxies in front>]' : '';
  const envs = weir.needsKey ? '\n#   nginx_config: { envs: [WEIR_KEY] }' : '';
  return `# Policy ${policy.namespace} of weir for APISIX 3.14 or later.
# This is conf/apisix.yaml of the standalone mode. conf/config.yaml must contain
#   apisix: { node_listen: ${listenPort}${trusted} }
#   deployment: { role: data_plane, role_data_plane: { config_provider: yaml } }${envs}
routes:
  - id: application
    uri: /*
    plugins:${joinRepeatedHeaders(policy)}
      proxy-rewrite:
        headers:
          # Only weir reads this header: remove a client's.
          remove:
            - X-Weir-Key
      forward-auth:
        uri: ${JSON.stringify(httpUrl(weir.host, weir.port, checkPath(policy)))}
        # GET sends no body. APISIX sets X-Forwarded-For to the address of the connection and
        # replaces the client's X-Forwarded-Method and X-Forwarded-Uri.
        request_method: GET
${requestHeaders(policy)}${extraHeaders(policy, weir.needsKey)}
        # Headers of a denial. APISIX also forwards its body to the client.
        client_headers:
${yamlList(denialHeaders(policy), 10)}
        # Headers of an allowed request. response-rewrite below copies them to the client.
        upstream_headers:
${yamlList(quotaHeaders(policy), 10)}
${failureMode(policy)}
        # In milliseconds. A flood delays responses on a busy machine by less.
        timeout: ${TIMEOUT_MS}
        # weir closes an idle connection after 10 s; APISIX must close it earlier.
        keepalive: true
        keepalive_timeout: 5000
        keepalive_pool: 64
      response-rewrite:
        # Only for responses of the application to requests that weir has decided.
        vars:
          - ["upstream_status", "~~", "."]
          - ["http_ratelimit", "~~", "."]
        headers:
          set:
${quotaHeaders(policy)
  .map((name) => `            ${name}: "$http_${name.toLowerCase().replaceAll('-', '_')}"`)
  .join('\n')}
    upstream:
      type: roundrobin
      nodes:
        ${JSON.stringify(`${upstream.host}:${upstream.port}`)}: 1
#END
`;
}

/** forward-auth sends the first of repeated headers; the application would receive all of them. */
function joinRepeatedHeaders(policy: Policy): string {
  const names = identifyingHeaders(policy).map((name) => JSON.stringify(name));
  if (names.length === 0) return '';
  return `
      serverless-pre-function:
        phase: rewrite
        functions:
          - |
            return function(conf, ctx)
              local request = require("apisix.core").request
              local headers, err = ngx.req.get_headers()
              -- APISIX reads at most 100 headers, so weir would not see the others.
              if err == "truncated" then return 431 end
              -- Of a repeated header, send the application only the line that weir counts.
              for _, name in ipairs({${names.join(', ')}}) do
                local value = headers[name]
                if type(value) == "table" then request.set_header(ctx, name, value[1]) end
              end
            end`;
}

function requestHeaders(policy: Policy): string {
  const names = identifyingHeaders(policy);
  const comment = '        # APISIX sends no other header of the client to weir.';
  if (names.length === 0) return comment;
  return `${comment}
        request_headers:
${yamlList(names, 10)}`;
}

function extraHeaders(policy: Policy, needsKey: boolean): string {
  const lines = [];
  if (policy.trustedHops > 1) {
    lines.push(
      '# The value from the proxies in front, with the address of the connection appended.',
      'X-Forwarded-For: "$proxy_add_x_forwarded_for"',
    );
  }
  if (needsKey) {
    lines.push('# APISIX replaces this from its environment when it reads the file.');
    lines.push(`X-Weir-Key: "\${{WEIR_KEY}}"`);
  }
  if (lines.length === 0) return '';
  return `
        extra_headers:
${lines.map((line) => `          ${line}`).join('\n')}`;
}

function failureMode({ onError }: Policy): string {
  const status = `
        status_on_error: 429`;
  return `\
        # Applies if weir is stopped or does not respond in time. APISIX returns every other
        # response of weir that is not a 2xx to the client, for example the 401 for a wrong key.
        allow_degradation: ${onError === 'allow'}${onError === 'allow' ? '' : status}`;
}
