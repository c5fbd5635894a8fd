// Runs the origin or the client of the suite `http-cache-tests`, from where that is installed.
//
//   node suite.mjs FOLDER server        its origin, on a free port of this machine only
//   node suite.mjs FOLDER client URL    its client, against the cache at that address
//
// The server prints its address, and exits when its standard input ends. The client prints a line of
// JSON with the result of each test.
import { createRequire } from 'node:module'
import net from 'node:net'
import process from 'node:process'

const [folder, half, base] = process.argv.slice(2)

async function serve () {
  const listen = net.Server.prototype.listen
  net.Server.prototype.listen = function () { return listen.call(this, 0, '127.0.0.1') }
  Object.assign(process.env, {
    npm_config_protocol: 'http', npm_config_port: '1', npm_config_pidfile: '/dev/null'
  })
  process.stdin.on('end', () => process.exit()).resume()
  await import(`${folder}/server/server.mjs`)
}

async function ask () {
  const { default: suites } = await import(`${folder}/tests/index.mjs`)
  const { getResults, runTests } = await import(`${folder}/client/runner.mjs`)
  const { determineTestResult } = await import(`${folder}/lib/display.mjs`)
  const fetch = createRequire(`${folder}/package.json`)('node-fetch')
  await runTests(suites, fetch, false, base)
  const results = getResults()
  const outcomes = []
  for (const { id: suite, tests } of suites) {
    for (const { id, kind = 'required', name, browser_only: forBrowsers } of tests) {
      if (forBrowsers) continue
      const said = results[id] ?? []
      outcomes.push({
        suite, id, kind, name,
        outcome: OUTCOMES[determineTestResult(suites, id, results)[2]] ?? 'unknown',
        detail: Array.isArray(said) ? said.join(': ') : ''
      })
    }
  }
  console.log(JSON.stringify(outcomes))
}

const OUTCOMES = {
  '-': 'untested',
  '✅': 'passed',
  '⛔️': 'failed',
  '⚠️': 'failed',
  Y: 'passed',
  N: 'failed',
  '🔹': 'setup failed',
  '⁉️': 'harness failed',
  '⚪️': 'dependency failed',
  '↻': 'to be retried'
}

await (half === 'server' ? serve() : ask())
