//! From conditions to one statement that gives the keys of a page.

use neap_core::WorkspaceId;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::Search;
use super::filter::{Comparison, Condition, Field, Order, Test, parse_filter, parse_order};
use super::pattern::glob_of_like;
use crate::entities::Page;
use crate::experiments::to_sql;
use crate::{Error, Result, limits};

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Experiment,
    Run,
    Model,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
}

/// A statement with its values, and where the page begins.
#[derive(Debug)]
pub(crate) struct Plan {
    sql: String,
    values: Vec<Value>,
    offset: u64,
    limit: u32,
}

impl Plan {
    /// The keys of one page.
    pub fn keys(&self, connection: &Connection) -> Result<Page<i64>> {
        let mut statement = connection.prepare_cached(&self.sql)?;
        let rows = statement.query_map(rusqlite::params_from_iter(&self.values), |row| row.get(0))?;
        let mut items: Vec<i64> = rows.collect::<rusqlite::Result<_>>()?;
        let more = items.len() > self.limit as usize;
        items.truncate(self.limit as usize);
        let next = more.then(|| (self.offset + u64::from(self.limit)).to_string());
        Ok(Page { items, next })
    }
}

/// Reads the search and makes its statement; every problem of filter and order is refused here.
pub(crate) fn plan(subject: Subject, workspace: WorkspaceId, search: &Search) -> Result<Plan> {
    let conditions = parse_filter(&search.filter)?;
    if search.order_by.len() > limits::ORDERS_MAX {
        return Err(Error::invalid(format!("At most {} columns can be ordered by.", limits::ORDERS_MAX)));
    }
    let orders = search.order_by.iter().map(|text| parse_order(text)).collect::<Result<Vec<_>>>()?;
    if search.experiments.len() > limits::SEARCHED_EXPERIMENTS_MAX {
        return Err(Error::invalid(format!(
            "One search looks in at most {} experiments; {} are named.",
            limits::SEARCHED_EXPERIMENTS_MAX,
            search.experiments.len()
        )));
    }
    let offset = match search.token.as_deref().filter(|token| !token.is_empty()) {
        None => 0,
        Some(token) => {
            token.parse::<u64>().map_err(|_| Error::invalid("The page token is not one of this server's."))?
        }
    };
    let limit = match search.limit {
        0 => limits::PAGE_ROWS_MAX,
        asked => asked.min(limits::PAGE_ROWS_MAX),
    };

    let mut builder = Builder { subject, values: vec![Value::Integer(to_sql(workspace.0))] };
    let mut wheres = vec!["t.workspace = ?1".to_owned()];
    if subject != Subject::Model {
        wheres.push(search.view.condition().to_owned());
    }
    if subject != Subject::Experiment {
        let places = builder.list(&search.experiments);
        wheres.push(format!("t.experiment IN ({places})"));
    }
    if let Some(job) = search.of_job.filter(|_| subject == Subject::Run) {
        let place = builder.bind(Value::Integer(to_sql(job.0)));
        wheres.push(format!("(t.job = {place} OR t.made_by = {place})"));
    }
    for condition in &conditions {
        wheres.push(builder.condition(condition)?);
    }
    let mut order_by = Vec::new();
    for order in &orders {
        order_by.extend(builder.order(order)?);
    }
    order_by.push(subject.default_order().to_owned());
    let sql = format!(
        "SELECT t.key FROM {} t WHERE {} ORDER BY {} LIMIT {} OFFSET {offset}",
        subject.table(),
        wheres.join(" AND "),
        order_by.join(", "),
        u64::from(limit) + 1,
    );
    Ok(Plan { sql, values: builder.values, offset, limit })
}

impl Subject {
    const fn table(self) -> &'static str {
        match self {
            Self::Experiment => "experiments",
            Self::Run => "runs",
            Self::Model => "models",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Experiment => "experiments",
            Self::Run => "runs",
            Self::Model => "logged models",
        }
    }

    /// As MLflow lists where nothing else is asked for.
    const fn default_order(self) -> &'static str {
        match self {
            Self::Experiment => "t.updated DESC, t.key DESC",
            Self::Run => "t.started DESC, t.id",
            Self::Model => "t.created DESC, t.id",
        }
    }

    /// The tables of metrics, params and tags.
    const fn metrics(self) -> Option<&'static str> {
        match self {
            Self::Experiment => None,
            Self::Run => Some("run_metrics"),
            Self::Model => Some("model_metrics"),
        }
    }

    const fn params(self) -> Option<&'static str> {
        match self {
            Self::Experiment => None,
            Self::Run => Some("run_params"),
            Self::Model => Some("model_params"),
        }
    }

    const fn tags(self) -> &'static str {
        match self {
            Self::Experiment => "experiment_tags",
            Self::Run => "run_tags",
            Self::Model => "model_tags",
        }
    }

    const fn attributes(self) -> &'static [(&'static str, &'static str, Kind)] {
        match self {
            Self::Experiment => &[
                ("name", "t.name", Kind::Text),
                ("experiment_id", "t.id", Kind::Text),
                ("creation_time", "t.created", Kind::Number),
                ("last_update_time", "t.updated", Kind::Number),
            ],
            Self::Run => &[
                ("run_id", "t.id", Kind::Text),
                ("run_name", "t.name", Kind::Text),
                ("Run name", "t.name", Kind::Text),
                ("run name", "t.name", Kind::Text),
                ("Run ID", "t.id", Kind::Text),
                ("run id", "t.id", Kind::Text),
                ("status", "t.status", Kind::Text),
                ("user_id", "t.user", Kind::Text),
                ("experiment_id", "t.experiment", Kind::Text),
                ("artifact_uri", "('mlflow-artifacts:/ExperimentRun/dcid.' || t.id)", Kind::Text),
                ("start_time", "t.started", Kind::Number),
                ("created", "t.started", Kind::Number),
                ("Created", "t.started", Kind::Number),
                ("end_time", "t.ended", Kind::Number),
            ],
            Self::Model => &[
                ("name", "t.name", Kind::Text),
                ("model_id", "t.id", Kind::Text),
                ("model_type", "t.kind", Kind::Text),
                ("source_run_id", "t.source_run", Kind::Text),
                ("status", "t.status", Kind::Text),
                ("experiment_id", "t.experiment", Kind::Text),
                ("creation_timestamp", "t.created", Kind::Number),
                ("creation_time", "t.created", Kind::Number),
                ("last_updated_timestamp", "t.updated", Kind::Number),
                ("last_updated_time", "t.updated", Kind::Number),
            ],
        }
    }

    fn attribute(self, name: &str) -> Result<(&'static str, Kind)> {
        let found = self.attributes().iter().find(|(word, ..)| *word == name);
        found.map(|(_, column, kind)| (*column, *kind)).ok_or_else(|| {
            let known: Vec<_> = self.attributes().iter().map(|(word, ..)| *word).collect();
            Error::invalid(format!(
                "'{name}' is no attribute of {}; there are {}. Metrics, params and tags have that word before them.",
                self.word(),
                known.join(", ")
            ))
        })
    }
}

struct Builder {
    subject: Subject,
    values: Vec<Value>,
}

impl Builder {
    fn bind(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("?{}", self.values.len())
    }

    fn text(&mut self, value: &str) -> String {
        self.bind(Value::Text(value.to_owned()))
    }

    fn list(&mut self, values: &[String]) -> String {
        values.iter().map(|value| self.text(value)).collect::<Vec<_>>().join(", ")
    }

    fn condition(&mut self, condition: &Condition) -> Result<String> {
        let subject = self.subject;
        let none = |what: &str| Error::invalid(format!("{what} are not kept of {}.", subject.word()));
        match &condition.field {
            Field::Attribute(name) => {
                let (column, kind) = subject.attribute(name)?;
                self.test(column, kind, name, &condition.test)
            }
            Field::Metric(key) => {
                let table = subject.metrics().ok_or_else(|| none("Metrics"))?;
                self.exists(table, key, Kind::Number, "x.nan = 0 AND ", &condition.test)
            }
            Field::Param(key) => {
                let table = subject.params().ok_or_else(|| none("Parameters"))?;
                self.exists(table, key, Kind::Text, "", &condition.test)
            }
            Field::Tag(key) => self.exists(subject.tags(), key, Kind::Text, "", &condition.test),
            Field::Dataset(part) => {
                let column = match part.as_str() {
                    "name" => "x.name",
                    "digest" => "x.digest",
                    "context" => "x.context",
                    _ => {
                        return Err(Error::invalid(format!(
                            "datasets.{part} is none of name, digest and context."
                        )));
                    }
                };
                if subject != Subject::Run {
                    return Err(none("Datasets"));
                }
                let test = self.test(column, Kind::Text, part, &condition.test)?;
                Ok(format!("EXISTS (SELECT 1 FROM run_datasets x WHERE x.owner = t.key AND {test})"))
            }
        }
    }

    /// What has no such key fails every test, but that it is absent.
    fn exists(&mut self, table: &str, key: &str, kind: Kind, also: &str, test: &Test) -> Result<String> {
        let place = self.text(key);
        let row = format!("SELECT 1 FROM {table} x WHERE x.owner = t.key AND x.key = {place}");
        if let Test::Null { not } = test {
            return Ok(format!("{}EXISTS ({row})", if *not { "" } else { "NOT " }));
        }
        let test = self.test("x.value", kind, key, test)?;
        Ok(format!("EXISTS ({row} AND {also}{test})"))
    }

    fn test(&mut self, column: &str, kind: Kind, name: &str, test: &Test) -> Result<String> {
        match (kind, test) {
            (_, Test::Null { not }) => Ok(format!("{column} IS {}NULL", if *not { "NOT " } else { "" })),
            (Kind::Number, Test::Number(comparison, number)) => {
                let place = self.bind(Value::Real(*number));
                Ok(format!("{column} {} {place}", comparison.sql()))
            }
            (Kind::Number, _) => Err(Error::invalid(format!("'{name}' is compared with a number."))),
            (Kind::Text, Test::Text(comparison @ (Comparison::Equal | Comparison::Unequal), text)) => {
                let place = self.text(text);
                Ok(format!("{column} {} {place}", comparison.sql()))
            }
            (Kind::Text, Test::Text(..)) => Err(Error::invalid(format!(
                "'{name}' is a text: it takes =, !=, LIKE, ILIKE and IN, and no order."
            ))),
            (Kind::Text, Test::Number(..)) => {
                Err(Error::invalid(format!("'{name}' is compared with a text in quotes.")))
            }
            (Kind::Text, Test::Like { pattern, any_case: true }) => {
                let place = self.text(pattern);
                Ok(format!("{column} LIKE {place}"))
            }
            (Kind::Text, Test::Like { pattern, any_case: false }) => {
                let place = self.text(&glob_of_like(pattern));
                Ok(format!("{column} GLOB {place}"))
            }
            (Kind::Text, Test::In { values, not }) => {
                let places = self.list(values);
                Ok(format!("{column} {}IN ({places})", if *not { "NOT " } else { "" }))
            }
        }
    }

    /// What has no value comes last, whichever the direction.
    fn order(&mut self, order: &Order) -> Result<Vec<String>> {
        let subject = self.subject;
        let none = |what: &str| Error::invalid(format!("{what} are not kept of {}.", subject.word()));
        let column = match &order.field {
            Field::Attribute(name) => subject.attribute(name)?.0.to_owned(),
            Field::Metric(key) => {
                let table = subject.metrics().ok_or_else(|| none("Metrics"))?;
                let place = self.text(key);
                format!(
                    "(SELECT CASE WHEN o.nan THEN NULL ELSE o.value END FROM {table} o \
                     WHERE o.owner = t.key AND o.key = {place} ORDER BY o.step DESC, o.timestamp DESC LIMIT 1)"
                )
            }
            Field::Param(key) => {
                let table = subject.params().ok_or_else(|| none("Parameters"))?;
                let place = self.text(key);
                format!("(SELECT o.value FROM {table} o WHERE o.owner = t.key AND o.key = {place})")
            }
            Field::Tag(key) => {
                let place = self.text(key);
                format!(
                    "(SELECT o.value FROM {} o WHERE o.owner = t.key AND o.key = {place})",
                    subject.tags()
                )
            }
            Field::Dataset(_) => return Err(Error::invalid("Datasets cannot be ordered by.")),
        };
        let direction = if order.descending { "DESC" } else { "ASC" };
        Ok(vec![format!("{column} {direction} NULLS LAST")])
    }
}
