/** The files of the repository that `weir print` prints. The Compose file mounts them too. */

import { grafanaDashboard } from '../../src/observe/grafana/dashboard.ts';
import { prometheusRules } from '../../src/observe/rules/prometheus-rules.ts';
import type { Generated } from './generator.ts';

export const printedFiles: Generated['files'] = {
  'deploy/helm/files/grafana-dashboard.json': () => grafanaDashboard(),
  'deploy/helm/files/prometheus-rules.yml': () => prometheusRules(),
};
