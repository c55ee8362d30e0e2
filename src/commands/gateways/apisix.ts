/** The configuration of APISIX for a policy: the routes of its standalone mode. */

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

/** @throws StartError where weir is on a Unix socket */
export function apisix({ policy, weir, listenPort, upstream }: GatewaySetup): string {
  if ('socket' in weir) throw tcpOnlyError('APISIX');
  const trusted = policy.trustedHops > 1 ? ', trusted_addresses: [<proxies in front>]' : '';
  const envs = weir.needsKey ? '\n#   nginx_config: { envs: [WEIR_KEY] }' : '';
  return `# Policy ${policy.namespace} of weir for APISIX 3.14 or later.
# This is conf/apisix.yaml of its standalone mode, for which conf/config.yaml has
#   apisix: { node_listen: ${listenPort}${trusted} }
#   deployment: { role: data_plane, role_data_plane: { config_provider: yaml } }${envs}
routes:
  - id: application
    uri: /*
    plugins:${joinRepeatedHeaders(policy)}
      proxy-rewrite:
        headers:
          # A client's own goes nowhere.
          remove:
            - X-Weir-Key
      forward-auth:
        uri: ${JSON.stringify(httpUrl(weir.host, weir.port, checkPath(policy)))}
        # Without the client's body. APISIX sets X-Forwarded-For to the address of the connection,
        # X-Forwarded-Method and X-Forwarded-Uri, whatever the client's own say.
        request_method: GET
${requestHeaders(policy)}${extraHeaders(policy, weir.needsKey)}
        # Of a refusal, whose body is passed on.
        client_headers:
${yamlList(denialHeaders(policy), 10)}
        # Of an admission, to the application, and from there to the client.
        upstream_headers:
${yamlList(quotaHeaders(policy), 10)}
${failureMode(policy)}
        # Longer than a flood delays an answer on a busy machine.
        timeout: ${TIMEOUT_MS}
        # weir closes an idle connection after 10 s, and must not be the first to.
        keepalive: true
        keepalive_timeout: 5000
        keepalive_pool: 64
      response-rewrite:
        # What the application has answered, and weir was asked before.
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

/** forward-auth asks by the first of repeated headers; the application would get all of them. */
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
              -- Of more than 100 headers neither this function nor forward-auth sees the others.
              if err == "truncated" then return 431 end
              -- Of repeated headers the application gets the very one by which weir counts.
              for _, name in ipairs({${names.join(', ')}}) do
                local value = headers[name]
                if type(value) == "table" then request.set_header(ctx, name, value[1]) end
              end
            end`;
}

function requestHeaders(policy: Policy): string {
  const names = identifyingHeaders(policy);
  const others = "        # Of the client's headers no others reach weir.";
  if (names.length === 0) return others;
  return `${others}
        request_headers:
${yamlList(names, 10)}`;
}

function extraHeaders(policy: Policy, needsKey: boolean): string {
  const lines = [];
  if (policy.trustedHops > 1) {
    lines.push(
      '# What the proxies in front have put there, and the address of the connection.',
      'X-Forwarded-For: "$proxy_add_x_forwarded_for"',
    );
  }
  if (needsKey) {
    lines.push('# From the environment of APISIX, put in when it reads this file.');
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
        # While weir is stopped or late. What else but a 2xx weir answers is passed on, such as the
        # 401 for a wrong key.
        allow_degradation: ${onError === 'allow'}${onError === 'allow' ? '' : status}`;
}
