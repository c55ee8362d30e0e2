/**
 * Checks the Helm chart with Helm, and its output and all manifests by the schemas of Kubernetes and
 * of the Prometheus Operator. No cluster is needed, and none was used.
 */

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterAll, describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { goModule, goTool } from '../support/programs/go-tool.ts';
import { pythonEnvironment } from '../support/programs/python-environment.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { runWeir } from '../support/weir-command.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const CHART = 'deploy/helm';
const MANIFESTS = 'deploy/kubernetes';
const KUBERNETES = '1.33';
const OPERATOR = 'github.com/prometheus-operator/prometheus-operator';
const MONITOR_CRD = 'example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml';

const helm = await goTool('helm.sh/helm/v3/cmd/helm', 'v3.22.0');
const python = await pythonEnvironment('kubernetes', ['kubernetes-validate==1.37.0']);
const operator = await goModule(OPERATOR, 'v0.85.0');

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

const POLICIES = { login: { gateway: 'nginx', limit: 2, duration: 2_592_000_000 } };
/** Values that together use each branch of each template. */
const VARIANTS: Record<string, object> = {
  'the defaults': {},
  Redis: { engine: 'redis' },
  'a configuration file': { config: { logLevel: 'warn', policies: POLICIES } },
  'an image by its digest': {
    image: { digest: `sha256:${'a'.repeat(64)}`, pullSecrets: ['registry'] },
  },
  'a storage class': { persistence: { size: '10Gi', storageClassName: 'fast' } },
  'other clients': {
    networkPolicy: { clients: [{ ipBlock: { cidr: '10.0.0.0/8' } }] },
  },
  'a ServiceMonitor': { serviceMonitor: { enabled: true, labels: { release: 'monitoring' } } },
  'everything with Redis': {
    engine: 'redis',
    redis: { replicas: 5 },
    config: { policies: POLICIES },
    serviceMonitor: { enabled: true },
    resources: { limits: { cpu: 2, memory: '1Gi' } },
  },
};

function runHelm(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(helm!, [...args, '--kube-version', '1.33.0'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

function valuesFile(values: object): string {
  const path = join(directory, 'values.json');
  writeFileSync(path, JSON.stringify(values));
  return path;
}

function template(values: object, release = 'weir'): string {
  const { status, stdout, stderr } = runHelm('template', release, CHART, '-f', valuesFile(values));
  expect([status, stderr]).toEqual([0, '']);
  return stdout;
}

/** Validates manifests strictly: an unknown field is an error. */
function validate(path: string) {
  const args = ['-k', KUBERNETES, '--strict', '--no-warn', path];
  const { status, stdout, stderr } = spawnSync(join(python!.bin, 'kubernetes-validate'), args, {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return { status, output: `${stdout}${stderr}` };
}

describe.skipIf(helm === undefined)('helm', () => {
  test.each(Object.entries(VARIANTS))('lint accepts the chart with %s', (_, values) => {
    const { status, stdout } = runHelm('lint', '--strict', CHART, '-f', valuesFile(values));
    expect([status, stdout]).toEqual([0, expect.stringContaining('0 chart(s) failed')]);
  });

  test.each([
    ['engine=disk', "at '/engine': value must be one of 'memory', 'redis'"],
    ['redis.replicas=0', "at '/redis/replicas': minimum: got 0, want 1"],
    ['replicas=3', "at '': additional properties 'replicas' not allowed"],
    ['config.logLevl=warn', "at '/config': additional properties 'logLevl' not allowed"],
    ['config.rootKey=a', "at '/config': additional properties 'rootKey' not allowed"],
    ['networkPolicy.clients=', "at '/networkPolicy/clients': got string, want array"],
  ])('rejects the value %s, and says why', (value, message) => {
    const { status, stderr } = runHelm('template', 'weir', CHART, '--set', value);
    expect([status, stderr]).toEqual([1, expect.stringContaining(message)]);
  });

  test('rejects versions of Kubernetes without the sleep action', () => {
    const args = ['template', 'weir', CHART, '--kube-version', '1.29.0'];
    const { status, stderr } = spawnSync(helm!, args, { cwd: ROOT, encoding: 'utf8' });
    expect([status, stderr]).toEqual([1, expect.stringContaining('requires kubeVersion')]);
  });

  test('prints the files of deploy/kubernetes by the command in their head', () => {
    const made = readdirSync(join(ROOT, MANIFESTS)).flatMap((name) => {
      const text = readFileSync(join(ROOT, MANIFESTS, name), 'utf8');
      const [, command] = /^#\s+helm (template .*)$/m.exec(text) ?? [];
      if (command === undefined) return [];
      const args = command.split(' ');
      const { status, stdout, stderr } = spawnSync(helm!, args, { cwd: ROOT, encoding: 'utf8' });
      expect([name, status, stderr]).toEqual([name, 0, '']);
      expect(text.slice(text.indexOf('---\n'))).toBe(stdout);
      return [name];
    });
    expect(made.toSorted()).toEqual(['replicas.yaml', 'servicemonitor.yaml', 'standalone.yaml']);
  });

  test('writes a configuration file that weir accepts', async () => {
    const manifests = parseAllDocuments(template(VARIANTS['a configuration file']));
    const [config] = manifests.map((of) => of.toJS()).filter(({ kind }) => kind === 'ConfigMap');
    const path = join(directory, 'weir.json');
    writeFileSync(path, config.data['weir.json']);
    const { code, stdout } = await runWeir('http://127.0.0.1:7070', ['config', 'check', path]);
    expect([code, stdout]).toEqual([0, expect.stringContaining('valid: 1 policy, 1 setting')]);
  });

  test('gives two releases in one namespace different names and selectors', () => {
    const namesOf = (release: string) => {
      return parseAllDocuments(template(VARIANTS['everything with Redis'], release)).map((of) => {
        const { kind, metadata, spec } = of.toJS();
        return `${kind} ${metadata.name} ${JSON.stringify(spec?.selector ?? {})}`;
      });
    };
    const second = new Set(namesOf('second'));
    expect(namesOf('first').filter((name) => second.has(name))).toEqual([]);
  });
});

describe.skipIf(python === undefined)('kubernetes-validate', () => {
  test.each(readdirSync(join(ROOT, MANIFESTS)))('accepts %s', (name) => {
    const { status, output } = validate(join(MANIFESTS, name));
    expect([status, output]).toEqual([0, expect.not.stringMatching(/ERROR|fail/i)]);
  });

  test.skipIf(helm === undefined).each(Object.entries(VARIANTS))(
    'accepts the chart with %s',
    (_, values) => {
      const path = join(directory, 'manifests.yaml');
      writeFileSync(path, template(values));
      const { status, output } = validate(path);
      const objects = parseAllDocuments(readFileSync(path, 'utf8')).map((of) => of.toJS());
      const known = objects.filter(({ kind }) => kind !== 'ServiceMonitor');
      expect([status, output.match(/passed for resource/g)?.length]).toEqual([0, known.length]);
    },
  );

  test('rejects an unknown field', () => {
    const path = join(directory, 'wrong.yaml');
    const text = readFileSync(join(ROOT, MANIFESTS, 'standalone.yaml'), 'utf8');
    writeFileSync(path, text.replace('startupProbe:', 'startProbe:'));
    expect(validate(path)).toEqual({ status: 1, output: expect.stringContaining('startProbe') });
  });
});

test.skipIf(operator === undefined)('the ServiceMonitor has the schema of its operator', () => {
  const crd = parse(readFileSync(join(operator!, MONITOR_CRD), 'utf8'));
  const [{ schema }] = crd.spec.versions;
  const isValid = new Ajv({ strict: false, validateFormats: false }).compile(
    withoutUnknownFields(schema.openAPIV3Schema),
  );
  const text = readFileSync(join(ROOT, MANIFESTS, 'servicemonitor.yaml'), 'utf8');
  const monitor = parse(text);
  expect([isValid(monitor), isValid.errors]).toEqual([true, null]);
  const wrong = { ...monitor, spec: { ...monitor.spec, endpoints: [{ prot: 'admin' }] } };
  expect(isValid(wrong)).toBe(false);
});

/** The API server rejects fields that a schema does not name, with strict validation of fields. */
function withoutUnknownFields(schema: unknown): Record<string, unknown> {
  const strict = (part: unknown): unknown => {
    if (Array.isArray(part)) return part.map(strict);
    if (typeof part !== 'object' || part === null) return part;
    const inner = Object.fromEntries(
      Object.entries(part).map(([name, value]) => [name, strict(value)]),
    );
    const isClosed = 'properties' in inner && !('additionalProperties' in inner);
    return isClosed && inner.type === 'object' ? { ...inner, additionalProperties: false } : inner;
  };
  const top = strict(schema) as { properties: Record<string, unknown> };
  // Each object has the fields of ObjectMeta, which a CRD does not repeat.
  return { ...top, properties: { ...top.properties, metadata: { type: 'object' } } };
}
