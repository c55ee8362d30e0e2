/**
 * Prints weir.mjs: the middleware for Express or the hook for Fastify of the package, with the
 * options for a policy. The complete text contains the code of `src/middleware` for a policy, so it
 * needs no package. The snippet imports that code from the package.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageFile } from '../../core/package-files.ts';
import type { Policy } from '../../policies/policy.ts';
import { httpUrl } from './common.ts';
import type { GatewaySetup, WeirAddress } from './setup.ts';

interface Framework {
  name: 'express' | 'fastify';
  /** The module of `src/middleware` that answers requests, and its function. */
  module: string;
  answer: string;
  /** How an application uses the module. */
  use: string;
  /** The setting with which the framework trusts one proxy. */
  proxySetting: string;
}

const EXPRESS: Framework = {
  name: 'express',
  module: 'express-middleware',
  answer: 'expressMiddleware',
  use: 'app.use(limit);',
  proxySetting: "app.set('trust proxy', 1)",
};
const FASTIFY: Framework = {
  name: 'fastify',
  module: 'fastify-hook',
  answer: 'fastifyHook',
  use: "app.addHook('onRequest', limit);",
  proxySetting: 'Fastify({ trustProxy: 1 })',
};

export const express = (setup: GatewaySetup) => complete(setup, EXPRESS);
export const expressSnippet = (setup: GatewaySetup) => snippet(setup, EXPRESS);
export const fastify = (setup: GatewaySetup) => complete(setup, FASTIFY);
export const fastifySnippet = (setup: GatewaySetup) => snippet(setup, FASTIFY);

function complete(setup: GatewaySetup, framework: Framework): string {
  const { name, module, answer } = framework;
  const { imports, code } = bundle(['gateway-check', module]);
  return `\
${head(setup, framework)}
${imports}

const OPTIONS = ${options(setup)};

${code}
export const limit = ${answer}(gatewayCheck('${name}', OPTIONS));
`;
}

function snippet(setup: GatewaySetup, framework: Framework): string {
  return `\
${head(setup, framework)}
import { rateLimit } from '@weir-ratelimit/weir/${framework.name}';

export const limit = rateLimit(${options(setup)});
`;
}

function head({ routes }: GatewaySetup, { name, use, proxySetting }: Framework): string {
  const [{ policy }] = routes;
  const usesRequestIp = policy.identify.includes('ip') && policy.trustedHops === 1;
  const proxyNote = `
//
// ${name} determines the address of the client. Behind a proxy: ${proxySetting}.`;
  return `\
// weir.mjs for ${name}: checks each request with the policy ${policy.namespace} of weir, before any
// route runs.
//
//   import { limit } from "./weir.mjs";
//   ${use}${usesRequestIp ? proxyNote : ''}
`;
}

/** The options that differ from the defaults, and `onError`, as an object literal. */
function options({ routes, weir }: GatewaySetup): string {
  const [{ policy }] = routes;
  const { namespace, onError, trustedHops, legacyHeaders, skip = [] } = policy;
  const rows = [
    `url: ${quoted(urlOf(weir))},`,
    ...(weir.needsKey
      ? ['// The API key of this application at weir.', 'key: process.env.WEIR_KEY,']
      : []),
    `namespace: ${quoted(namespace)},`,
    `identify: ${identifyList(policy)},`,
    ...(skip.length > 0 ? [`skip: [${skip.map(quoted).join(', ')}],`] : []),
    `onError: ${quoted(onError)},`,
    ...(trustedHops > 1 ? [`trustedHops: ${trustedHops},`] : []),
    ...(legacyHeaders ? ['legacyHeaders: true,'] : []),
  ];
  return `{${rows.map((row) => `\n  ${row}`).join('')}\n}`;
}

function urlOf(weir: WeirAddress): string {
  return 'socket' in weir ? `unix:${weir.socket}` : httpUrl(weir.host, weir.port);
}

function identifyList({ identify }: Policy): string {
  return identify.length === 1 ? quoted(identify[0]) : `[${identify.map(quoted).join(', ')}]`;
}

function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&')}'`;
}

interface Bundle {
  /** Lines that import from Node. */
  imports: string;
  code: string;
}

/** Modules of `src/middleware`, and those that they need, as one text. */
function bundle(entries: readonly string[]): Bundle {
  const imports = new Set<string>();
  const modules = new Map<string, string>();
  const add = (file: string) => {
    if (modules.has(file)) return;
    const text = readFileSync(packageFile(join('dist/middleware', file)), 'utf8');
    for (const [line, from] of text.matchAll(IMPORT)) {
      if (from.startsWith('./')) add(from);
      else imports.add(line.trim());
    }
    modules.set(file, format(text));
  };
  for (const entry of entries) add(`${entry}.js`);
  return { imports: [...imports].join('\n'), code: [...modules.values()].join('\n') };
}

const IMPORT = /^import .* from '([^']+)';\n/gm;

/**
 * Removes what connects a module to others. The compiler indents by four blanks, and drops empty
 * lines. So this puts an empty line after the head of the module, and before top-level comments and
 * functions.
 */
function format(module: string): string {
  return module
    .replace(IMPORT, '')
    .replace(/^export \{.*\};\n/gm, '')
    .replace(/^export /gm, '')
    .replace(/^( {4})+/gm, (indent) => ' '.repeat(indent.length / 2))
    .replace(/^\/\*\*.*?\*\/\n/s, '$&\n')
    .replace(/^(?!\/\/|\/\*\*| \*)(.+)\n(?=\/\*\*|\/\/|(async )?function |class )/gm, '$1\n\n');
}
