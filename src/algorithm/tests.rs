use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::time::{DAY, SECOND};
